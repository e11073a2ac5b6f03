// x: rows of `width` elements; ids: the numbers of the rows to send, in this order (0: all rows as they are); y: the results,
// symmetric. Chunk c has the rows plan[c] to plan[c + 1] - 1 of those sent. It goes to member plan[10 + c], and is stored there
// from row plan[20 + c] on. A rank starts behind the chunk for itself, so that no two members send to the same one at the same
// time. Odd blocks go backwards, so that rows for this rank itself are copied while other rows are in flight.
extern "C" __global__ void __launch_bounds__(512) send_rows(Px px, const TYPE* x, const i64* ids, TYPE* y, i64 width,
        PxNumbers plan) {
    const u32 turn = px_turn(px, blockIdx.x);
    const int each = 16 / sizeof(TYPE);
    const i64 words = (width + each - 1) / each, all = plan.at[px.world] * words, step = (i64)gridDim.x * blockDim.x;
    const i64 rounds = (all + 4 * step - 1) / (4 * step);
    int own = 0;
    while (plan.at[10 + own] != px.rank) ++own;
    const i64 start = plan.at[own + 1] * words;
    for (i64 round = 0; round < rounds; ++round) {
        const i64 first = (blockIdx.x % 2 ? rounds - 1 - round : round) * 4 * step + (i64)blockIdx.x * blockDim.x + threadIdx.x;
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 4; ++k) {
            const i64 i = first + k * step, at = i + start < all ? i + start : i + start - all, row = at / words;
            if (i < all) part[k] = px_ld_part(x + (ids ? ids[row] : row) * width, at % words * each, width);
        }
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            const i64 i = first + k * step, at = i + start < all ? i + start : i + start - all, row = at / words;
            if (i >= all) break;
            int chunk = 0;
            while (row >= plan.at[chunk + 1]) ++chunk;
            TYPE* there = px_at(px, (int)plan.at[10 + chunk], y) + (plan.at[20 + chunk] + row - plan.at[chunk]) * width;
            px_st_part(there, at % words * each, width, part[k]);
        }
    }
    px_turn_barrier(px, blockIdx.x, turn);  // all ranks' rows have arrived
}
