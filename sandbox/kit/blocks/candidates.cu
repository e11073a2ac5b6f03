// boxes of `cut`: [2 (turns)][W (senders)][rows][2 + k / 2] words of 16 bytes with flags, symmetric. A row has {larger, ties},
// {edge, target's logit}, then the keys of the `larger` logits above the edge. The edge is the sender's k-th largest key, which
// occurs `ties` times in its row. Without top_k: {sum of exponentials, -}, {largest logit, target's logit}. Two turns are enough:
// a rank that sends launch t+2 has received all words of launch t+1, so all ranks have ended launch t.
const int LIST = 1024;
const u32 NOWHERE = 0xff800000u;  // -infinity: the logit of a target that is on another rank
// The whole block calls this: returns the k-th largest of the n keys in shared memory and of `ties[r]` copies of `edge[r]` for
// each r < edges; 0 if there are fewer than k.
template <class T> static __device__ u32 kth_largest(const u32* keys, int n, const u32* edge, const u32* ties, int edges, u32 k) {
    u32 bound = 0;
    for (int bit = Key<T>::bits - 1; bit >= 0; --bit) {
        const u32 probe = bound | 1u << bit;
        u32 reached = 0;
        for (int base = 0; base < n; base += blockDim.x) {
            const int i = base + threadIdx.x;
            reached += __syncthreads_count(i < n && keys[i] >= probe);
        }
        for (int r = 0; r < edges; ++r) reached += edge[r] >= probe ? ties[r] : 0;
        if (reached >= k) bound = probe;
    }
    return bound;
}
static __device__ u32 block_sum(u32 value) {
    __shared__ u32 total;
    __syncthreads();
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    if (value) atomicAdd(&total, value);
    __syncthreads();
    return total;
}
// The whole block calls this: writes the keys of a row above its k-th largest to `chosen`. Returns their number, the k-th largest
// key and how often it occurs. keys: LIST words of working memory.
struct Edge { u32 larger, key, ties; };
template <class T> static __device__ Edge choose(const T* from, i64 columns, u32 k, u32* keys, u32* chosen) {
    __shared__ u32 found, larger;
    float best = -px_infinity();
    look(from, columns, [&](float value, i64) { best = fmaxf(best, value); });
    __syncthreads();  // all threads have ended the previous row
    keys[threadIdx.x] = (i64)threadIdx.x * (16 / sizeof(T)) < columns ? key_of<T>(best) : 0;
    if (threadIdx.x == 0) found = larger = 0;
    __syncthreads();
    u32 bound = kth_largest<T>(keys, blockDim.x, 0, 0, 0, k);
    const float least = bound ? value_of<T>(bound) : -px_infinity();
    __syncthreads();
    look(from, columns, [&](float value, i64) {
        if (value < least) return;
        const u32 at = atomicAdd(&found, 1u);
        if (at < LIST) keys[at] = key_of<T>(value);
    });
    __syncthreads();
    const u32 many = found;
    u32 ties = 0;
    if (many <= LIST) {
        bound = kth_largest<T>(keys, many, 0, 0, 0, k);
        for (int i = threadIdx.x; i < many; i += blockDim.x) {
            ties += keys[i] == bound;
            if (keys[i] > bound) chosen[atomicAdd(&larger, 1u)] = keys[i];
        }
    } else {  // more keys than LIST reach the bound, most of them equal: search the whole row bit by bit
        bound = 0;
        for (int bit = Key<T>::bits - 1; bit >= 0; --bit) {
            const u32 probe = bound | 1u << bit;
            u32 reached = 0;
            look(from, columns, [&](float value, i64) { reached += key_of<T>(value) >= probe; });
            if (block_sum(reached) >= k) bound = probe;
        }
        look(from, columns, [&](float value, i64) {
            const u32 key = key_of<T>(value);
            ties += key == bound;
            if (key > bound) chosen[atomicAdd(&larger, 1u)] = key;
        });
    }
    ties = block_sum(ties);
    return {larger, bound, ties};
}
// Applies top-p to n entries in descending order. Entry i stands for `counts[i]` logits with key `keys[i]`, each of weight
// `weights[i]`. Drops logits in ascending order as long as their weight does not exceed `share` of the total; one of the largest
// always stays. Returns the least key that is kept, how many logits of this key are dropped, and the sum of the kept weights.
struct Kept { u32 least, dropped; double sum; };
template <class T> static __device__ Kept drop(const u32* keys, const u32* counts, const float* weights, int n, double share) {
    double total = 0, running = 0;
    for (int i = n - 1; i >= 0; --i) total += (double)counts[i] * weights[i];
    const double limit = share * total;
    u32 dropped = 0;
    int i = n - 1;
    for (;; --i) {
        const double weight = weights[i], left = limit - running;
        if (i + 1 < n && keys[i] != keys[i + 1]) dropped = 0;
        u32 gone = share > 0 ? counts[i] : 0;
        if (gone * weight > left) gone = left > 0 ? (u32)(left / weight) : 0;  // one division in all: they are slow
        if (i == 0 && gone == counts[0]) --gone;
        dropped += gone;
        running += gone * weight;
        if (gone < counts[i]) break;
    }
    return {keys[i], dropped, total - running};
}
// Finds the cut of top-k, with or without top-p, or of no filter. out: [4][rows], least, log_sum, found (the target's logit) and
// log_probability; own_dropped: [rows]; all as in sandbox.kit.blocks.truncation.Cut.
extern "C" __global__ void __launch_bounds__(512, 2) cut_rows(Px px, const TYPE* logits, const i64* target, uint4* boxes,
        float* out, i64* own_dropped, i64 rows, i64 columns, u32 top_k, double share) {
    const u32 turn = px_turn(px, blockIdx.x);
    const u32 own_k = top_k < columns ? top_k : (u32)columns;
    const i64 words = 2 + own_k / 2;
    __shared__ u32 keys[LIST], listed[LIST], counts[LIST];
    __shared__ float weights[LIST];
    uint4* box = boxes + (turn & 1) * px.world * rows * words;
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const TYPE* from = logits + row * columns;
        const i64 column = target[row] - px.rank * columns, mine = (px.rank * rows + row) * words;
        const u32 picked = column >= 0 && column < columns ? __float_as_uint(to_float(from[column])) : NOWHERE;
        uint2 head, edge;
        u32 larger = 0;
        if (top_k) {
            const Edge found = choose(from, columns, own_k, keys, listed);
            larger = found.larger;
            head = make_uint2(larger, found.ties), edge = make_uint2(found.key, picked);
        } else {
            const PxMass all = px_block_mass(px_mass(from, columns, threadIdx.x, blockDim.x));
            head = make_uint2(__float_as_uint(all.sum), 0), edge = make_uint2(__float_as_uint(all.peak), picked);
        }
        for (int i = threadIdx.x; i < px.world * (2 + (larger + 1) / 2); i += blockDim.x) {
            const int peer = i % px.world, word = i / px.world, at = 2 * (word - 2);
            uint2 data = word == 0 ? head : edge;
            if (word > 1) data = make_uint2(listed[at], at + 1 < larger ? listed[at + 1] : 0);
            px_st_ll16(px_at(px, peer, box) + mine + word, data, turn);
        }
        __syncthreads();  // all threads have read `listed`
    }
    __shared__ u32 first[PX_MAX_WORLD + 1], edges[PX_MAX_WORLD], ties[PX_MAX_WORLD], picks[PX_MAX_WORLD], chosen;
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        __syncthreads();  // all threads have ended the previous row
        if (threadIdx.x < px.world) {
            const uint4* from = box + (threadIdx.x * rows + row) * words;
            const uint2 head = px_ld_ll16(from, turn), edge = px_ld_ll16(from + 1, turn);
            counts[threadIdx.x] = head.x, ties[threadIdx.x] = head.y;
            edges[threadIdx.x] = edge.x, picks[threadIdx.x] = edge.y;
        }
        __syncthreads();
        float found = -px_infinity(), least = -px_infinity(), peak = 0, log_kept = 0;  // of exp(logit - peak)
        u32 dropped = 0;
        for (int r = 0; r < px.world; ++r) found = fmaxf(found, __uint_as_float(picks[r]));
        if (top_k) {
            if (threadIdx.x == 0) {
                chosen = first[0] = 0;
                for (int r = 0; r < px.world; ++r) first[r + 1] = first[r] + counts[r];
            }
            __syncthreads();
            const int n = first[px.world];
            for (int r = 0; r < px.world; ++r)
                for (int j = 2 * threadIdx.x; first[r] + j < first[r + 1]; j += 2 * blockDim.x) {
                    const uint2 pair = px_ld_ll16(box + (r * rows + row) * words + 2 + j / 2, turn);
                    keys[first[r] + j] = pair.x;
                    if (first[r] + j + 1 < first[r + 1]) keys[first[r] + j + 1] = pair.y;
                }
            __syncthreads();
            const u32 all_k = top_k < px.world * columns ? top_k : (u32)(px.world * columns);
            const u32 bound = kth_largest<TYPE>(keys, n, edges, ties, px.world, all_k);
            // The entries not below the k-th largest, with their counts: fewer than k above it, and those equal to it.
            for (int i = threadIdx.x; i < n + px.world; i += blockDim.x) {
                const u32 key = i < n ? keys[i] : edges[i - n];
                if (key < bound) continue;
                const u32 at = atomicAdd(&chosen, 1u);
                listed[at] = key, counts[at] = i < n ? 1 : ties[i - n];
            }
            __syncthreads();
            const int many = chosen;
            u32 key[LIST / 64], count[LIST / 64], place[LIST / 64];  // of this thread's entries; room enough from 64 threads on
            for (int i = threadIdx.x, j = 0; i < many; i += blockDim.x, ++j) {
                key[j] = listed[i], count[j] = counts[i], place[j] = 0;
                for (int o = 0; o < many; ++o) {
                    if (listed[o] != key[j]) place[j] += listed[o] > key[j];
                    else place[j] += counts[o] != count[j] ? counts[o] > count[j] : o < i;
                }
            }
            __syncthreads();
            for (int i = threadIdx.x, j = 0; i < many; i += blockDim.x, ++j) {
                listed[place[j]] = key[j], counts[place[j]] = count[j];
            }
            __syncthreads();
            peak = value_of<TYPE>(listed[0]);
            for (int i = threadIdx.x; i < many; i += blockDim.x) weights[i] = expf(value_of<TYPE>(listed[i]) - peak);
            __syncthreads();
            if (threadIdx.x == 0) {
                const Kept kept = drop<TYPE>(listed, counts, weights, many, share);
                least = value_of<TYPE>(kept.least), log_kept = (float)log(kept.sum);
                u32 left = kept.dropped, equal = 0;  // of equal logits, those of the lowest ranks are dropped first
                for (int r = 0; left && r <= px.rank; ++r) {
                    left -= min(left, equal);
                    equal = edges[r] == kept.least ? ties[r] : 0;
                    for (int i = first[r]; i < first[r + 1]; ++i) equal += keys[i] == kept.least;
                }
                dropped = min(left, equal);
            }
        } else {
            PxMass all = px_no_mass();
            for (int r = 0; r < px.world; ++r) all = px_joined(all, {__uint_as_float(edges[r]), __uint_as_float(counts[r])});
            log_kept = logf(all.sum), peak = all.peak;
        }
        if (threadIdx.x == 0) {
            out[row] = least, out[rows + row] = log_kept + peak, out[2 * rows + row] = found;
            out[3 * rows + row] = found >= least ? found - peak - log_kept : -px_infinity();
            own_dropped[row] = dropped;
        }
    }
    px_reach(px, blockIdx.x, turn);
}
// The whole block calls this: sums three numbers over the threads of the same block of all ranks. Adds in rank order, so that all
// ranks get the same bits. words: rank 0's three words of this exchange; the words of each next rank are `pitch` words further. A
// word holds a sum as two floats, its rounded value and the rest.
static __device__ void sum_over_ranks(const Px& px, uint4* words, i64 pitch, const float* own, double* sums, u32 turn) {
    __shared__ float warps[3][32];
    __shared__ double totals[3];
    #pragma unroll
    for (int j = 0; j < 3; ++j) {
        const float sum = px_warp_sum(own[j]);
        if (threadIdx.x % 32 == 0) warps[j][threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 3) {
        double sum = 0;
        for (int w = 0; w < blockDim.x / 32; ++w) sum += warps[threadIdx.x][w];
        const float high = (float)sum, low = (float)(sum - high);
        for (int peer = 0; peer < px.world; ++peer)
            px_st_ll16(px_at(px, peer, words) + px.rank * pitch + threadIdx.x,
                make_uint2(__float_as_uint(high), __float_as_uint(low)), turn);
        sum = 0;
        for (int source = 0; source < px.world; ++source) {
            const uint2 got = px_ld_ll16(words + source * pitch + threadIdx.x, turn);
            sum += (double)__uint_as_float(got.x) + __uint_as_float(got.y);
        }
        totals[threadIdx.x] = sum;
    }
    __syncthreads();
    #pragma unroll
    for (int j = 0; j < 3; ++j) sums[j] = totals[j];
}
// Finds the cut of top-p alone: the largest key such that the logits below it have at most `share` of the sum of all
// exponentials. Each round reads the row, which is still cached, and finds two bits of the key. boxes: [2 (turns)][W
// (senders)][rows][5 + 3 rounds] words of 16 bytes with flags: {sum of exponentials, -}, {largest logit, target's logit}, three
// words of the last exchange, then three of each round.
extern "C" __global__ void __launch_bounds__(512, 2) cut_rows_by_share(Px px, const TYPE* logits, const i64* target, uint4* boxes,
        float* out, i64* own_dropped, i64 rows, i64 columns, double share) {
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 words = 5 + 3 * (Key<TYPE>::bits / 2), pitch = rows * words;
    __shared__ float heads[3][PX_MAX_WORLD];
    uint4* box = boxes + (turn & 1) * px.world * pitch;
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const TYPE* from = logits + row * columns;
        uint4* here = box + row * words;
        const PxMass own = px_block_mass(px_mass(from, columns, threadIdx.x, blockDim.x));
        if (threadIdx.x < px.world) {
            const i64 column = target[row] - px.rank * columns;
            const u32 picked = column >= 0 && column < columns ? __float_as_uint(to_float(from[column])) : NOWHERE;
            uint4* there = px_at(px, (int)threadIdx.x, here) + px.rank * pitch;
            px_st_ll16(there, make_uint2(__float_as_uint(own.sum), 0), turn);
            px_st_ll16(there + 1, make_uint2(__float_as_uint(own.peak), picked), turn);
            const uint4* got = here + threadIdx.x * pitch;
            const uint2 sum = px_ld_ll16(got, turn), edge = px_ld_ll16(got + 1, turn);
            heads[0][threadIdx.x] = __uint_as_float(sum.x);
            heads[1][threadIdx.x] = __uint_as_float(edge.x);
            heads[2][threadIdx.x] = __uint_as_float(edge.y);
        }
        __syncthreads();
        float peak = heads[1][0], found = heads[2][0];
        for (int r = 1; r < px.world; ++r) peak = fmaxf(peak, heads[1][r]), found = fmaxf(found, heads[2][r]);
        double total = 0, sums[3];
        for (int r = 0; r < px.world; ++r) total += (double)heads[0][r] * expf(heads[1][r] - peak);
        const double limit = share * total;
        u32 bound = 0;
        for (int round = 0; round < Key<TYPE>::bits / 2; ++round) {
            const int shift = Key<TYPE>::bits - 2 - 2 * round;
            float below[3] = {0, 0, 0}, bounds[3];
            #pragma unroll  // keys above infinity's are of no number: every logit is below
            for (u32 j = 0; j < 3; ++j) bounds[j] = value_of<TYPE>(min(bound + (j + 1 << shift), key_of<TYPE>(px_infinity())));
            look(from, columns, [&](float value, i64) {
                const float weight = px_exp(value - peak);
                #pragma unroll
                for (int j = 0; j < 3; ++j)
                    if (value < bounds[j]) below[j] += weight;
            });
            sum_over_ranks(px, here + 5 + 3 * round, pitch, below, sums, turn);
            bound += (u32)((sums[0] <= limit) + (sums[1] <= limit) + (sums[2] <= limit)) << shift;
        }
        bound = min(bound, key_of<TYPE>(peak));  // the largest logit is always kept
        float last[3] = {0, 0, 0};  // sum of exponentials below the cut, and number of logits at the cut
        const float least = value_of<TYPE>(bound);
        look(from, columns, [&](float value, i64) {
            if (value < least) last[0] += px_exp(value - peak);
            last[1] += value == least;
        });
        sum_over_ranks(px, here + 2, pitch, last, sums, turn);
        if (threadIdx.x == 0) {
            const double weight = expf(least - peak), many = sums[1];
            double dropped = floor((limit - sums[0]) / weight);
            dropped = dropped < many ? (dropped > 0 ? dropped : 0) : many;
            if (dropped == many && bound == key_of<TYPE>(peak)) dropped -= 1;
            const float log_kept = (float)log(total - sums[0] - dropped * weight);
            double before = 0, equal = 0;  // of equal logits, those of the lowest ranks are dropped first
            for (int r = 0; r <= px.rank; ++r) {
                before += equal;
                equal = __uint_as_float(px_ld_ll16(here + r * pitch + 3, turn).x);
            }
            const double left = dropped > before ? dropped - before : 0;
            out[row] = least, out[rows + row] = log_kept + peak, out[2 * rows + row] = found;
            out[3 * rows + row] = found >= least ? found - peak - log_kept : -px_infinity();
            own_dropped[row] = (i64)(left < equal ? left : equal);
        }
        __syncthreads();  // all threads have ended the row
    }
    px_reach(px, blockIdx.x, turn);
}
