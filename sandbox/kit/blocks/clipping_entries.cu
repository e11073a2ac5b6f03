extern "C" __global__ void __launch_bounds__(512) sum_all(Px px, PxNumbers few, const i64* many, float* partial, u32* done,
        uint4* boxes, float* out, int tensors, int dense, float p, float divisor, float max_norm) {
    sum_powers<TYPE>(px, few, many, partial, done, boxes, out, tensors, dense, p, divisor, max_norm);
}
extern "C" __global__ void __launch_bounds__(512) scale_all(
        PxNumbers few, const i64* many, const float* factors, int tensors, int dense) {
    scale<TYPE>(few, many, factors, tensors, dense);
}
