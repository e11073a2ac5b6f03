// q, k, v: [batch][rows] rows, `pitch` elements apart, of which heads * width are read; y: [batch][rows][heads][width]; box: [W
// (senders)][2 (k, v)][batch][rows][heads][width], symmetric, one of two buffers used in turn. Block b works on the pairs (batch,
// head) number b, b + gridDim.x, ... on all ranks. It sends their keys and values to the ranks that attend to them, and reads
// what the same block of the other ranks has sent. A warp works on one query at a time; a lane has elements lane, lane + 32, ...
// of a head. Scores stay in registers: softmax has a running maximum and a running sum, and takes KEYS keys at a time.
#define KEPT 8
#define KEYS 4
template <class T> static __device__ void send(const Px& px, const T* k, const T* v, T* box, i64 size, int rows, int heads,
        int width, i64 pitch, int pair, int causal) {
    const int each = 16 / sizeof(T), words = (width + each - 1) / each;
    for (int i = threadIdx.x; i < rows * words; i += blockDim.x) {
        const i64 row = (i64)(pair / heads) * rows + i / words, head = pair % heads * width;
        const i64 from = row * pitch + head, at = row * heads * width + head;
        const int first = i % words * each;
        const uint4 key = px_ld_part(k + from, first, width), value = px_ld_part(v + from, first, width);
        for (int peer = causal ? px.rank + 1 : 0; peer < px.world; ++peer) {
            if (peer == px.rank) continue;
            T* there = px_at(px, peer, box) + 2 * px.rank * size + at;
            px_st_part(there, first, width, key);
            px_st_part(there + size, first, width, value);
        }
    }
}
extern "C" __global__ void __launch_bounds__(256) attend_to_all(Px px, const TYPE* q, const TYPE* k, const TYPE* v, TYPE* y,
        TYPE* box, int batch, int rows, int heads, int width, i64 pitch, float scale, int causal) {
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 size = (i64)batch * rows * heads * width;
    const int lane = threadIdx.x % 32, pairs = batch * heads;
    for (int pair = blockIdx.x; pair < pairs; pair += gridDim.x)
        send(px, k, v, box, size, rows, heads, width, pitch, pair, causal);
    px_turn_barrier(px, blockIdx.x, turn);  // the other ranks' keys and values have arrived
    for (int item = threadIdx.x / 32; item < (pairs - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x * rows;
            item += blockDim.x / 32) {
        const int pair = blockIdx.x + item / rows * gridDim.x, row = item % rows;
        const i64 own = (i64)(pair / heads) * rows * pitch + pair % heads * width, packed = (i64)heads * width;
        const i64 sent = (i64)(pair / heads) * rows * packed + pair % heads * width;  // of the first row, in the box and in y
        float query[KEPT], total[KEPT], top = -1e38f, weights = 0;
        #pragma unroll
        for (int e = 0; e < KEPT; ++e) {
            query[e] = lane + 32 * e < width ? to_float(q[own + row * pitch + lane + 32 * e]) * scale : 0;
            total[e] = 0;
        }
        for (int source = 0; source < (causal ? px.rank + 1 : px.world); ++source) {
            const TYPE* keys = source == px.rank ? k + own : box + 2 * source * size + sent;
            const TYPE* values = source == px.rank ? v + own : box + (2 * source + 1) * size + sent;
            const i64 step = source == px.rank ? pitch : packed;
            const int seen = causal && source == px.rank ? row + 1 : rows;
            for (int first = 0; first < seen; first += KEYS) {
                float score[KEYS], higher = top;
                #pragma unroll
                for (int j = 0; j < KEYS; ++j) {
                    float product = 0;
                    #pragma unroll
                    for (int e = 0; e < KEPT; ++e)
                        if (first + j < seen && lane + 32 * e < width)
                            product += query[e] * to_float(keys[(first + j) * step + lane + 32 * e]);
                    score[j] = px_warp_sum(product);
                    if (first + j >= seen) score[j] = -3e38f;
                    higher = fmaxf(higher, score[j]);
                }
                const float kept = expf(top - higher);
                weights *= kept;
                #pragma unroll
                for (int e = 0; e < KEPT; ++e) total[e] *= kept;
                #pragma unroll
                for (int j = 0; j < KEYS; ++j) {
                    const float added = expf(score[j] - higher);
                    weights += added;
                    #pragma unroll
                    for (int e = 0; e < KEPT; ++e)
                        if (first + j < seen && lane + 32 * e < width)
                            total[e] += added * to_float(values[(first + j) * step + lane + 32 * e]);
                }
                top = higher;
            }
        }
        #pragma unroll
        for (int e = 0; e < KEPT; ++e)
            if (lane + 32 * e < width) y[sent + row * packed + lane + 32 * e] = from_float<TYPE>(total[e] / weights);
    }
}
