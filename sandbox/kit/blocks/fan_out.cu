// The list (few, many): number 2t is the address of tensor t on the root, number 2t + 1 its length. y: the tensors one after
// another, symmetric. A word has 16 bytes; the last word of a tensor may have fewer elements, so that no word belongs to two
// tensors.
template <class T> struct Place { const T* from; T* to; i64 first, n; };
template <class T> static __device__ Place<T> place_of(const PxNumbers& few, const i64* many, int tensors, T* y, i64 word) {
    const int each = 16 / sizeof(T);
    for (int t = 0; t < tensors; ++t) {
        const i64 n = px_number(few, many, 2 * t + 1), words = (n + each - 1) / each;
        if (word < words) return {(const T*)px_number(few, many, 2 * t), y, each * word, n};
        word -= words;
        y += n;
    }
    return {nullptr, y, 0, 0};  // beyond the last tensor: nothing is read or written
}
// Block b works on the same words of every share on all ranks. In slot base + most_blocks + b, a rank signals how many pieces of
// a share it has sent. PIECE has numbers for up to 15 pieces a launch.
#define PIECE(turn, count) (16 * (turn) + (count))
extern "C" __global__ void __launch_bounds__(512) fan_out(Px px, PxNumbers few, const i64* many, TYPE* y, int tensors, i64 words,
        int pieces, u32 base, u32 most_blocks, int root) {
    const u32 slot = base + blockIdx.x, passed = slot + most_blocks, turn = px_turn(px, slot);
    px_enter(px, slot, turn);  // the buffer of two launches ago may be written again on all ranks
    const i64 step = (i64)gridDim.x * blockDim.x, first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const int helpers = max(px.world - 1, 1), peer = px_thread();
    const int helper = (px.rank - root + px.world) % px.world - 1;  // -1: the root
    const i64 share = (words + helpers - 1) / helpers, length = (share + pieces - 1) / pieces;
    for (int piece = 0; piece < pieces; ++piece) {
        const i64 last = min((piece + 1) * length, share);
        if (helper < 0) {
            for (int to = 0; to < helpers; ++to)
                for (i64 i = piece * length + first; i < last; i += 4 * step) {
                    Place<TYPE> place[4];
                    uint4 part[4];
                    #pragma unroll  // all loads are in flight before the first store
                    for (int k = 0; k < 4; ++k) {
                        const i64 word = i + k * step;
                        place[k] = place_of(few, many, tensors, y, word < last ? to * share + word : words);
                        part[k] = px_ld_part(place[k].from, place[k].first, place[k].n);
                    }
                    #pragma unroll
                    for (int k = 0; k < 4; ++k) {
                        TYPE* there = px_at(px, (root + 1 + to) % px.world, place[k].to);
                        if (px.world > 1) px_st_part(there, place[k].first, place[k].n, part[k]);
                        px_st_part(place[k].to, place[k].first, place[k].n, part[k]);
                    }
                }
            __syncthreads();
            if (peer < px.world && peer != root) px_signal(px, peer, passed, PIECE(turn, piece + 1));
        } else if (helpers > 1) {
            if (peer == 0) px_wait(px, root, passed, PIECE(turn, piece + 1));
            __syncthreads();  // this piece of this rank's share has arrived
            for (i64 i = piece * length + first; i < last; i += 4 * step) {
                Place<TYPE> place[4];
                uint4 part[4];
                #pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const i64 word = i + k * step;
                    place[k] = place_of(few, many, tensors, y, word < last ? helper * share + word : words);
                    part[k] = px_ld_part(place[k].to, place[k].first, place[k].n);
                }
                for (int away = 1; away < helpers; ++away) {
                    const int to = (root + 1 + (helper + away) % helpers) % px.world;
                    #pragma unroll
                    for (int k = 0; k < 4; ++k) px_st_part(px_at(px, to, place[k].to), place[k].first, place[k].n, part[k]);
                }
            }
        }
    }
    if (helper < 0) return;
    __syncthreads();
    if (peer < px.world && peer != px.rank) {
        if (peer != root) px_signal(px, peer, passed, PIECE(turn, pieces));
        px_wait(px, peer, passed, PIECE(turn, pieces));  // the peer's share has arrived
    }
}
