// x: [outer] blocks of `rows_in` rows of `width_in` elements; y: the result, symmetric. The part of every block that a rank sends
// to peer d:
//   across = 0: rows d * rows to (d + 1) * rows, width elements each       -> y[outer][rows][W (senders)][width]
//   across = 1: in each of the rows, elements d * width to (d + 1) * width -> y[outer][W (senders)][rows][width]
// Elements beyond rows_in or width_in are zero. A thread moves one word of every peer's part, so that a rank writes to all peers
// all the time.
extern "C" __global__ void __launch_bounds__(512) reshard(Px px, const TYPE* x, TYPE* y, i64 outer, i64 rows_in, i64 width_in,
        i64 rows, i64 width, int across) {
    const u32 turn = px_turn(px, blockIdx.x);
    const int each = 16 / sizeof(TYPE);
    const i64 words = (width + each - 1) / each, all = outer * rows * words;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += (i64)gridDim.x * blockDim.x) {
        i64 line, word, block, row;
        if (all < 0xffffffff) {  // 32-bit divisions are several times as fast
            line = (u32)i / (u32)words, word = (u32)i % (u32)words;
            block = (u32)line / (u32)rows, row = (u32)line % (u32)rows;
        } else {
            line = i / words, word = i % words;
            block = line / rows, row = line % rows;
        }
        uint4 part[PX_MAX_WORLD];
        #pragma unroll  // all loads are in flight before the first store
        for (int turn_of = 0; turn_of < PX_MAX_WORLD; ++turn_of) {
            if (turn_of >= px.world) continue;
            const i64 peer = (px.rank + turn_of) % px.world;
            if (across) {
                const i64 left = width_in - peer * width;
                part[turn_of] = px_ld_part(x + (block * rows + row) * width_in + peer * width, word * each, min(left, width));
            } else {
                const i64 from = peer * rows + row;
                part[turn_of] = px_ld_part(x + (block * rows_in + from) * width, word * each, from < rows_in ? width : 0);
            }
        }
        const i64 place = across ? ((block * px.world + px.rank) * rows + row) : ((block * rows + row) * px.world + px.rank);
        #pragma unroll
        for (int turn_of = 0; turn_of < PX_MAX_WORLD; ++turn_of)
            if (turn_of < px.world)
                px_st_part(px_at(px, (px.rank + turn_of) % px.world, y) + place * width, word * each, width, part[turn_of]);
    }
    px_turn_barrier(px, blockIdx.x, turn);  // all ranks' parts have arrived
}
