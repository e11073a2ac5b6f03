// A chunk is the rows of one source for one expert. Chunks arrive source by source, and are stored expert by expert. sizes:
// [world][experts / world], the number of rows of each chunk. The whole block calls read_chunks, then any thread may call
// place_of. `arrives` and `lies` are the numbers of a chunk's first row among the arriving rows and among the stored rows.
const int MOST_EXPERTS = 1024;
struct Chunks { u32 rows[MOST_EXPERTS], arrives[MOST_EXPERTS], lies[MOST_EXPERTS]; };
static __device__ void read_chunks(Chunks& chunks, const i64* sizes, int world, int experts) {
    const int local = experts / world;
    for (int i = threadIdx.x; i < experts; i += blockDim.x) chunks.rows[i] = (u32)sizes[i];
    __syncthreads();
    for (int i = threadIdx.x; i < experts; i += blockDim.x) {
        u32 earlier = 0, lower = 0;
        for (int source = 0; source < world; ++source)
            for (int expert = 0; expert < local; ++expert) {
                const u32 rows = chunks.rows[source * local + expert];
                if (source * local + expert < i) earlier += rows;
                if (expert < i % local || (expert == i % local && source < i / local)) lower += rows;
            }
        chunks.arrives[i] = earlier;
        chunks.lies[i] = lower;
    }
    __syncthreads();
}
// Returns where arriving row number `row` is stored. Of several chunks that begin at a row, the last one holds it: the others are
// empty.
static __device__ u32 place_of(const Chunks& chunks, int experts, u32 row) {
    int chunk = 0;
    for (int end = experts; end - chunk > 1;) {
        const int middle = (chunk + end) / 2;
        if (chunks.arrives[middle] <= row) chunk = middle;
        else end = middle;
    }
    return chunks.lies[chunk] + row - chunks.arrives[chunk];
}
