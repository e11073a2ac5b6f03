#define AHEAD (WORLD <= 4 ? 2 : 1)  // words of each array that a thread has in flight
// gradient: this rank's slice of n elements, symmetric; it is read from every rank. old, updated: weight, first and second
// moment, n elements each. If bit k of to_all is set, updated[k] is symmetric and is stored at all ranks. step_size =
// lr / (1 - beta1^t), root_scale = 1 / sqrt(1 - beta2^t), decay = lr * weight_decay.
extern "C" __global__ void __launch_bounds__(512) step_slice(Px px, TYPE* gradient, TYPE* weight, TYPE* mean, TYPE* square,
        TYPE* new_weight, TYPE* new_mean, TYPE* new_square, i64 n, int to_all, float mean_of, float beta1, float rest1,
        float beta2, float rest2, float step_size, float root_scale, float eps, float decay, u32 base) {
    TYPE* const old[3] = {weight, mean, square};
    TYPE* const updated[3] = {new_weight, new_mean, new_square};
    const u32 slot = base + blockIdx.x, turn = px_turn(px, slot);
    px_turn_barrier(px, slot, turn);  // all ranks' gradients are complete
    const int each = 16 / sizeof(TYPE);
    const i64 stride = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i * each < n; i += AHEAD * stride) {
        uint4 part[AHEAD][WORLD], state[AHEAD][3];
        #pragma unroll  // all loads are in flight before the first addition
        for (int a = 0; a < AHEAD; ++a) {
            #pragma unroll
            for (int source = 0; source < WORLD; ++source)
                part[a][source] = px_ld_part(px_at(px, source, gradient), each * (i + a * stride), n);
            #pragma unroll
            for (int k = 0; k < 3; ++k) state[a][k] = px_ld_part(old[k], each * (i + a * stride), n);
        }
        #pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            PxSum<TYPE> total;
            #pragma unroll  // in rank order
            for (int source = 0; source < WORLD; ++source) total.add(part[a][source]);
            float value[3][8];
            #pragma unroll
            for (int k = 0; k < 3; ++k) px_unpack<TYPE>(state[a][k], value[k]);
            #pragma unroll
            for (int e = 0; e < each; ++e) {
                const float g = total.sum[e] * mean_of;
                value[1][e] = beta1 * value[1][e] + rest1 * g;
                value[2][e] = beta2 * value[2][e] + rest2 * g * g;
                value[0][e] -= step_size * value[1][e] / (sqrtf(value[2][e]) * root_scale + eps) + decay * value[0][e];
            }
            #pragma unroll
            for (int k = 0; k < 3; ++k) {
                const uint4 rounded = px_pack<TYPE>(value[k]);
                const int places = to_all >> k & 1 ? WORLD : 1;
                for (int away = 0; away < places; ++away)
                    px_st_part(places > 1 ? px_at(px, (px.rank + away) % WORLD, updated[k]) : updated[k],
                        each * (i + a * stride), n, rounded);
            }
        }
    }
    px_turn_barrier(px, slot, turn + 1);  // all ranks' results have arrived, and no rank reads gradients any more
}
