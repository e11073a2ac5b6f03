extern "C" __global__ void __launch_bounds__(512) step_slice(Px px, TYPE* gradient, TYPE* weight, TYPE* mean, TYPE* square,
        TYPE* new_weight, TYPE* new_mean, TYPE* new_square, i64 n, int to_all, float mean_of, float beta1, float rest1,
        float beta2, float rest2, float step_size, float root_scale, float eps, float decay, u32 base) {
    TYPE* const old[3] = {weight, mean, square};
    TYPE* const updated[3] = {new_weight, new_mean, new_square};
    step<TYPE>(px, gradient, old, updated, n, to_all, mean_of, beta1, rest1, beta2, rest2, step_size, root_scale, eps, decay,
        base + blockIdx.x);
}
