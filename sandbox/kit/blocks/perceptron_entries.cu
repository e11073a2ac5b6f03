extern "C" __global__ void __launch_bounds__(256) loss_gradient(TYPE* output, const TYPE* target, TYPE* bias, float* partial,
        u32* done, i64 rows, i64 width, float factor) {
    change_and_sum(output, target, bias, partial, done, rows, width, Loss{factor});
}
extern "C" __global__ void __launch_bounds__(256) relu_gradient(TYPE* gradient, const TYPE* hidden, TYPE* bias, float* partial,
        u32* done, i64 rows, i64 width) {
    change_and_sum(gradient, hidden, bias, partial, done, rows, width, Relu{});
}
