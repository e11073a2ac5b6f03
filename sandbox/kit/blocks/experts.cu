// Routes tokens, each by one warp. logits: [tokens][experts]; weights: [tokens][W], the sum of a token's top_k probabilities over
// the experts that each rank owns. x: [tokens][width]. arrived: [W (sources)][tokens][width], symmetric: the token is stored at
// its own place at every rank where its weight is not 0. If arrived is 0, nothing is sent. Probabilities are rounded to T before
// the choice, as torch's softmax does. Of equal probabilities the first is chosen.
extern "C" __global__ void __launch_bounds__(512) route_tokens(Px px, const TYPE* logits, const TYPE* x, TYPE* arrived,
        float* weights, i64 tokens, i64 width, int experts, int top_k) {
    const u32 turn = px_turn(px, blockIdx.x);
    const int lane = threadIdx.x % 32, owned = experts / px.world;
    for (i64 t = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32; t < tokens; t += (i64)gridDim.x * blockDim.x / 32) {
        const TYPE* row = logits + t * experts;
        const PxMass mass = px_warp_mass(px_mass(row, experts, lane, 32));
        float weight = 0;  // of the experts of rank number `lane`
        u64 last = ~0ull;
        for (int k = 0; k < top_k; ++k) {
            u64 best = 0;  // a probability's bits sort like its value; ~e makes the first of equal ones the largest
            for (int e = lane; e < experts; e += 32) {
                const float probability = to_float(from_float<TYPE>(expf(to_float(row[e]) - mass.peak) / mass.sum));
                const u64 key = (u64)__float_as_uint(probability) << 32 | ~(u32)e;
                if (key < last && key > best) best = key;
            }
            #pragma unroll
            for (int away = 16; away > 0; away /= 2) {
                const u64 other = __shfl_xor_sync(0xffffffffu, best, away);
                if (other > best) best = other;
            }
            if (lane == (int)~(u32)best / owned) weight += __uint_as_float((u32)(best >> 32));
            last = best;
        }
        if (lane < px.world) weights[t * px.world + lane] = weight;
        for (int away = 0; arrived && away < px.world; ++away) {
            const int owner = (px.rank + away) % px.world;
            if (__shfl_sync(0xffffffffu, weight, owner) == 0) continue;
            px_move(px_at(px, owner, arrived) + (px.rank * tokens + t) * width, x + t * width, width, lane, 32);
        }
    }
    if (arrived) px_turn_barrier(px, blockIdx.x, turn);  // all ranks' tokens have arrived
}
// places: [W][tokens], for each token how many before it go to the rank; counts: [W], how many in all. A block for each rank.
extern "C" __global__ void __launch_bounds__(512) place_tokens(const float* weights, i64* places, i64* counts, i64 tokens) {
    i64 running = 0;
    for (i64 first = 0; first < tokens; first += blockDim.x) {
        const i64 t = first + threadIdx.x;
        u32 all;
        const u32 before = sum_before(t < tokens && weights[t * gridDim.x + blockIdx.x] != 0, all);
        if (t < tokens) places[blockIdx.x * tokens + t] = running + before;
        running += all;
    }
    if (threadIdx.x == 0) counts[blockIdx.x] = running;
}
// packed: [W][tokens][width], for each rank the tokens that go there, at their places.
extern "C" __global__ void __launch_bounds__(512) pack_tokens(const TYPE* x, const float* weights, const i64* places, TYPE* packed,
        i64 tokens, i64 width, int world) {
    const int each = 16 / sizeof(TYPE);
    const i64 words = (width + each - 1) / each, all = tokens * words;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += (i64)gridDim.x * blockDim.x) {
        const i64 t = all < 0xffffffff ? (u32)i / (u32)words : i / words, first = (i - t * words) * each;
        const uint4 part = px_ld_part(x + t * width, first, width);
        for (int owner = 0; owner < world; ++owner) {
            if (weights[t * world + owner] == 0) continue;
            px_st_part(packed + (owner * tokens + places[owner * tokens + t]) * width, first, width, part);
        }
    }
}
// z = silu(u) * w, rounded once; z may be u. u, w: [rows][width], rows `pitch` elements apart; z: [rows][width], rows z_pitch elements apart.
extern "C" __global__ void __launch_bounds__(512) gate(const TYPE* u, const TYPE* w, TYPE* z, i64 rows, i64 width, i64 pitch,
        i64 z_pitch) {
    const int each = 16 / sizeof(TYPE);
    const u32 words = (width + each - 1) / each;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * words; i += gridDim.x * blockDim.x) {
        const i64 row = i / words, first = i % words * each;
        float up[8], factor[8];
        px_unpack<TYPE>(px_ld_part(u + row * pitch, first, width), up);
        px_unpack<TYPE>(px_ld_part(w + row * pitch, first, width), factor);
        #pragma unroll
        for (int e = 0; e < each; ++e) up[e] = up[e] / (1 + expf(-up[e])) * factor[e];
        px_st_part(z + row * z_pitch, first, width, px_pack<TYPE>(up));
    }
}
// out: [tokens][width], the sum over the owners of a token's weight times the owner's result. y: symmetric. pulled = 1: the
// results of owner d are in y[this rank][tokens][width] in d's memory; 0: they have been sent back to y[d][tokens][width] in this
// rank's memory. places: [W][tokens], the tokens' rows in these arrays; 0: token t is row t.
extern "C" __global__ void __launch_bounds__(512) combine_owners(Px px, TYPE* y, const float* weights, const i64* places,
        TYPE* out, i64 tokens, i64 width, int pulled) {
    if (pulled) px_turn_barrier(px, blockIdx.x, px_turn(px, blockIdx.x));  // the experts of all ranks have ended
    const int each = 16 / sizeof(TYPE);
    const i64 words = (width + each - 1) / each, all = tokens * words;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += (i64)gridDim.x * blockDim.x) {
        const i64 t = all < 0xffffffff ? (u32)i / (u32)words : i / words, first = (i - t * words) * each;
        uint4 part[PX_MAX_WORLD];
        float weight[PX_MAX_WORLD], sum[8];
        #pragma unroll  // all loads are in flight before the first addition
        for (int owner = 0; owner < PX_MAX_WORLD; ++owner) {
            weight[owner] = owner < px.world ? weights[t * px.world + owner] : 0;
            if (weight[owner] == 0) continue;  // the memory may hold anything
            const TYPE* from = pulled ? px_at(px, owner, y) + px.rank * tokens * width : y + owner * tokens * width;
            part[owner] = px_ld_part(from + (places ? places[owner * tokens + t] : t) * width, first, width);
        }
        #pragma unroll
        for (int e = 0; e < each; ++e) sum[e] = 0;
        #pragma unroll
        for (int owner = 0; owner < PX_MAX_WORLD; ++owner) {
            if (weight[owner] == 0) continue;
            float value[8];
            px_unpack<TYPE>(part[owner], value);
            #pragma unroll
            for (int e = 0; e < each; ++e) sum[e] += weight[owner] * value[e];
        }
        px_st_part(out + t * width, first, width, px_pack<TYPE>(sum));
    }
}
