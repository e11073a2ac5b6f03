'''The gated delta rule in one launch, two tokens at a time. States are in registers; some warps step, others prepare.

    from sandbox.kit import cuda
    from sandbox.kit.blocks import delta_rule

    kernel = cuda.compile(delta_rule.SOURCE + r"""struct Gate { ... };
    extern "C" __global__ void __launch_bounds__(256) recur(Px px, const bf16* q, ...) {
        delta_rule<bf16, 2, 4, 4, Gate>(px, q, ...);
    }""").recur
    kernel[min(delta_rule.items_of(v, 256), 264), 256](symm.px, q, ...)

Per head, with a state S [K][V]: S = diag(d) S; u = b (v - S^T k); S = S + k u^T; o = S^T q. Before that q and k are divided by
their norms, and q by sqrt(K). The columns of S are independent. For two successive tokens, all sums over K can use the
state S before both: with k1' = d2 k1 (by channel)

    u1 = b1 (v1 - S^T (d1 k1))                          o1 = S^T (d1 q1) + (k1 . q1) u1
    u2 = b2 (v2 - S^T (d1 d2 k2) - (k1' . k2) u1)       o2 = S^T (d1 d2 q2) + (k1' . q2) u1 + (k2 . q2) u2
    S = diag(d1 d2) S + k1' u1^T + k2 u2^T

So the chain of steps has one reduction for two tokens. Everything that does not depend on the state is prepared.
'''

import torch

SOURCE = r"""
// A block works on 4 WARPS columns of one head's state at a time. The first WARPS warps run the steps, four columns each: 16
// lanes share a pair of columns, and a lane holds channels 4 (sub + 16 g) + 0..3 of both in registers. Meanwhile the other AHEAD
// warps prepare the next TILE tokens in shared memory and store the results of the previous tile. So no step waits for global
// memory.
struct Steps { i64 batch, tokens, share, heads, value_heads, channels, columns, all_heads, first_head; };
template <class T> struct __align__(4 * sizeof(T)) Four { T at[4]; };
template <class T> static __device__ Four<T> four_of(const T* row, int first, int n) {
    if (first + 4 <= n && (u64)(row + first) % sizeof(Four<T>) == 0) return *(const Four<T>*)(row + first);
    Four<T> four;
    #pragma unroll
    for (int e = 0; e < 4; ++e) four.at[e] = first + e < n ? row[first + e] : from_float<T>(0);
    return four;
}
// Vectors of a pair of tokens. With a decay for each channel, the first four include the decays and are multiplied with the
// state, and LATER_KEY, OWN_KEY and KEPT update it. Otherwise decays are in Pair, and KEY_1 and KEY_2 also update the state.
enum { KEY_1, QUERY_1, KEY_2, QUERY_2, LATER_KEY, OWN_KEY, KEPT };
// own: k1 . q1, k2 . q2; across: k1' . k2, k1' . q2, where k1' is k1 after the second token's decay.
struct Pair { float strength[2], own[2], across_key, across_query, decay[2]; };
// Steps through the tokens. q, k: [batch][tokens][heads][channels]; v: [batch][tokens][value_heads][columns]; beta:
// [batch][tokens][value_heads]; gate: like beta; a_log, dt_bias: [value_heads]. If Gate::BY_CHANNEL, gate and dt_bias have
// another dimension [channels]. Gate: decay(gate, exp(a_log), dt_bias), strength(beta), least(): a lower bound of norms.
// out: [batch][share][all_heads][columns]. If share < tokens, it is symmetric, and token t goes to member t / share. Value head
// j is written as head first_head + j.
// boxes: [2 (turns)][items][4 GROUPS][32 WARPS] words of two numbers with flags, symmetric: the states that the previous member
// sends. 0: states begin at zero.
template <class T, int GROUPS, int WARPS, int AHEAD, class Gate> static __device__ void delta_rule(const Px& px, const T* q,
        const T* k, const T* v, const T* gate, const T* beta, const bf16* a_log, const bf16* dt_bias, T* out, uint4* boxes,
        const Steps& s) {
    const int TILE = (Gate::BY_CHANNEL ? 16 : 32) / GROUPS, PAIRS = TILE / 2, MINE = (PAIRS + AHEAD - 1) / AHEAD;
    const int FOURS = 16 * GROUPS;
    const int EACH = (FOURS + 31) / 32, COLUMNS = 4 * WARPS, PART = 16 / sizeof(T), WORDS = (COLUMNS + PART - 1) / PART;
    const int VECTORS = Gate::BY_CHANNEL ? 7 : 4;
    const int LATER = Gate::BY_CHANNEL ? LATER_KEY : KEY_1, OWN = Gate::BY_CHANNEL ? OWN_KEY : KEY_2;
    __shared__ float4 vectors[2][PAIRS][VECTORS][FOURS];  // at most 32 KB
    __shared__ Pair pairs[2][PAIRS];
    __shared__ float values[2][TILE][COLUMNS], results[2][TILE][COLUMNS];
    const bool steps = threadIdx.x < 32 * WARPS;
    const int thread = threadIdx.x - (steps ? 0 : 32 * WARPS), warp = thread / 32, lane = thread % 32, sub = lane % 16;
    const int column = warp * 4 + lane / 16 * 2, token = thread / WORDS, part = thread % WORDS * PART;
    const i64 slices = (s.columns + COLUMNS - 1) / COLUMNS, items = s.batch * s.value_heads * slices;
    const i64 tiles = (s.tokens + TILE - 1) / TILE;
    const u32 turn = px_turn(px, blockIdx.x);
    // After this, all ranks have read the states of two launches ago, so their boxes may be written again.
    if (boxes) px_enter(px, blockIdx.x, turn);
    for (i64 item = blockIdx.x; item < items; item += gridDim.x) {
        const i64 slice = item % slices, head = item / slices % s.value_heads, b = item / slices / s.value_heads;
        const i64 first = slice * COLUMNS, last = min(first + COLUMNS, s.columns), shared_head = head * s.heads / s.value_heads;
        float state[2][4 * GROUPS] = {};
        uint4* box = boxes + ((turn & 1) * items + item) * (128 * WARPS * GROUPS) + thread;
        if (steps && boxes && px.rank > 0) {
            #pragma unroll
            for (int i = 0; i < 4 * GROUPS; ++i) {
                const uint2 both = px_ld_ll16(box + i * 32 * WARPS, turn);
                state[0][i] = __uint_as_float(both.x), state[1][i] = __uint_as_float(both.y);
            }
        }
        const float slope = expf(to_float(a_log[head])), scale = rsqrtf((float)s.channels);
        Four<T> next_q[MINE][2][EACH], next_k[MINE][2][EACH], next_gate[MINE][2][EACH];
        T next_beta[MINE][2], next_number[MINE][2];
        uint4 next_v = make_uint4(0, 0, 0, 0);
        const auto load = [&](i64 begin) {  // reads a tile's tokens into registers
            #pragma unroll
            for (int m = 0; m < MINE; ++m) {
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const i64 t = b * s.tokens + min(begin + 2 * (m * AHEAD + warp) + i, s.tokens - 1);
                    const i64 row = t * s.value_heads + head, shared_row = (t * s.heads + shared_head) * s.channels;
                    #pragma unroll
                    for (int e = 0; e < EACH; ++e) {
                        const int at = 4 * (lane + 32 * e);
                        next_q[m][i][e] = four_of(q + shared_row, at, s.channels);
                        next_k[m][i][e] = four_of(k + shared_row, at, s.channels);
                        if (Gate::BY_CHANNEL) next_gate[m][i][e] = four_of(gate + row * s.channels, at, s.channels);
                    }
                    next_beta[m][i] = beta[row];
                    if (!Gate::BY_CHANNEL) next_number[m][i] = gate[row];
                }
            }
            const i64 t = b * s.tokens + begin + token;
            if (token < TILE && begin + token < s.tokens)
                next_v = px_ld_part(v + (t * s.value_heads + head) * s.columns, first + part, last);
        };
        const auto prepare = [&](i64 begin, int buffer) {  // from what `load` read; tokens beyond the end change nothing
            #pragma unroll
            for (int m = 0; m < MINE; ++m) {
                const int place = m * AHEAD + warp;
                if (place >= PAIRS) break;
                float query[2][4 * EACH], key[2][4 * EACH], decay[2][4 * EACH], squares[2][2] = {};
                Pair pair = {};
                #pragma unroll
                for (int i = 0; i < 2; ++i)
                    #pragma unroll
                    for (int e = 0; e < 4 * EACH; ++e) {
                        query[i][e] = to_float(next_q[m][i][e / 4].at[e % 4]);
                        key[i][e] = to_float(next_k[m][i][e / 4].at[e % 4]);
                        squares[i][0] += query[i][e] * query[i][e], squares[i][1] += key[i][e] * key[i][e];
                    }
                #pragma unroll  // without branches, so that the four sums run at the same time
                for (int n = 0; n < 4; ++n) squares[n / 2][n % 2] = px_warp_sum(squares[n / 2][n % 2]);
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const bool is_there = begin + 2 * place + i < s.tokens;
                    const float least = Gate::least() * Gate::least();
                    const float by_q = is_there ? scale * rsqrtf(fmaxf(squares[i][0], least)) : 0;
                    const float by_k = is_there ? rsqrtf(fmaxf(squares[i][1], least)) : 0;
                    #pragma unroll
                    for (int e = 0; e < 4 * EACH; ++e) {
                        query[i][e] *= by_q, key[i][e] *= by_k, decay[i][e] = 1;
                        const int channel = 4 * (lane + 32 * (e / 4)) + e % 4;
                        if (!Gate::BY_CHANNEL || !is_there || channel >= s.channels) continue;
                        const float bias = to_float(dt_bias[head * s.channels + channel]);
                        decay[i][e] = Gate::decay(to_float(next_gate[m][i][e / 4].at[e % 4]), slope, bias);
                    }
                    pair.decay[i] = 1;
                    if (!is_there) continue;
                    pair.strength[i] = Gate::strength(to_float(next_beta[m][i]));
                    if (!Gate::BY_CHANNEL)
                        pair.decay[i] = Gate::decay(to_float(next_number[m][i]), slope, to_float(dt_bias[head]));
                }
                #pragma unroll
                for (int e = 0; e < 4 * EACH; ++e) {
                    const float later = key[0][e] * decay[1][e];
                    pair.own[0] += key[0][e] * query[0][e], pair.own[1] += key[1][e] * query[1][e];
                    pair.across_key += later * key[1][e], pair.across_query += later * query[1][e];
                }
                pair.own[0] = px_warp_sum(pair.own[0]), pair.own[1] = px_warp_sum(pair.own[1]);
                pair.across_key = px_warp_sum(pair.across_key) * pair.decay[1];
                pair.across_query = px_warp_sum(pair.across_query) * pair.decay[1];
                if (lane == 0) pairs[buffer][place] = pair;
                #pragma unroll
                for (int e = 0; e < EACH; ++e) {
                    if (lane + 32 * e >= FOURS) continue;
                    float vector[7][4];
                    #pragma unroll
                    for (int c = 0; c < 4; ++c) {
                        const int i = 4 * e + c;
                        vector[KEPT][c] = decay[0][i] * decay[1][i];
                        vector[KEY_1][c] = decay[0][i] * key[0][i], vector[QUERY_1][c] = decay[0][i] * query[0][i];
                        vector[KEY_2][c] = vector[KEPT][c] * key[1][i], vector[QUERY_2][c] = vector[KEPT][c] * query[1][i];
                        vector[LATER_KEY][c] = decay[1][i] * key[0][i], vector[OWN_KEY][c] = key[1][i];
                    }
                    #pragma unroll
                    for (int n = 0; n < VECTORS; ++n)
                        vectors[buffer][place][n][lane + 32 * e] = {vector[n][0], vector[n][1], vector[n][2], vector[n][3]};
                }
            }
            float unpacked[8];
            px_unpack<T>(next_v, unpacked);
            if (token < TILE)
                for (int e = 0; e < min(PART, COLUMNS); ++e) values[buffer][token][part + e] = unpacked[e];
        };
        const auto store = [&](i64 begin, int buffer) {  // writes a tile's results to `out`
            const i64 t = begin + token;
            if (token >= TILE || t >= s.tokens) return;
            T* to = s.share < s.tokens ? px_at(px, (int)(t / s.share), out) : out;
            to += ((b * s.share + t % s.share) * s.all_heads + s.first_head + head) * s.columns;
            float packed[8];
            for (int e = 0; e < PART; ++e) packed[e] = e < COLUMNS ? results[buffer][token][part + e] : 0;
            px_st_part(to, first + part, last, px_pack<T>(packed));
        };
        const auto step = [&](int place, int buffer) {  // updates the state by a pair of tokens, and computes their results
            const Pair pair = pairs[buffer][place];
            const float4(*from)[FOURS] = vectors[buffer][place];
            float sum[4][2] = {};
            #pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
                #pragma unroll
                for (int n = 0; n < 4; ++n) {
                    const float4 x = from[n][sub + 16 * g];
                    #pragma unroll
                    for (int c = 0; c < 2; ++c) {
                        const float* part_of = state[c] + 4 * g;
                        sum[n][c] += part_of[0] * x.x + part_of[1] * x.y + (part_of[2] * x.z + part_of[3] * x.w);
                    }
                }
            }
            #pragma unroll
            for (int away = 8; away > 0; away /= 2)
                #pragma unroll
                for (int n = 0; n < 8; ++n) sum[n / 2][n % 2] += __shfl_xor_sync(0xffffffffu, sum[n / 2][n % 2], away);
            const float both = pair.decay[0] * pair.decay[1];
            float later[2], own[2];
            #pragma unroll
            for (int c = 0; c < 2; ++c) {
                const float value = values[buffer][2 * place][column + c], second = values[buffer][2 * place + 1][column + c];
                const float fresh = pair.strength[0] * (value - pair.decay[0] * sum[KEY_1][c]);
                own[c] = pair.strength[1] * (second - both * sum[KEY_2][c] - pair.across_key * fresh);
                later[c] = pair.decay[1] * fresh;
                if (sub != 0) continue;
                results[buffer][2 * place][column + c] = pair.decay[0] * sum[QUERY_1][c] + pair.own[0] * fresh;
                results[buffer][2 * place + 1][column + c] =
                    both * sum[QUERY_2][c] + pair.across_query * fresh + pair.own[1] * own[c];
            }
            #pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
                const float4 x = from[LATER][sub + 16 * g], y = from[OWN][sub + 16 * g];
                float4 z = {both, both, both, both};
                if (Gate::BY_CHANNEL) z = from[VECTORS - 1][sub + 16 * g];
                #pragma unroll
                for (int c = 0; c < 2; ++c) {
                    float* part_of = state[c] + 4 * g;
                    part_of[0] = part_of[0] * z.x + (x.x * later[c] + y.x * own[c]);
                    part_of[1] = part_of[1] * z.y + (x.y * later[c] + y.y * own[c]);
                    part_of[2] = part_of[2] * z.z + (x.z * later[c] + y.z * own[c]);
                    part_of[3] = part_of[3] * z.w + (x.w * later[c] + y.w * own[c]);
                }
            }
        };
        if (!steps && tiles > 0) load(0);
        for (i64 tile = -1; tile <= tiles; ++tile) {
            const int buffer = tile & 1;
            if (steps) {
                const int end = tile < 0 ? 0 : (int)min((i64)PAIRS, (s.tokens - tile * TILE + 1) / 2);
                #pragma unroll 4
                for (int place = 0; place < end; ++place) step(place, buffer);
            } else {
                if (tile + 1 < tiles) prepare((tile + 1) * TILE, 1 - buffer);
                if (tile + 2 < tiles) load((tile + 2) * TILE);
                if (tile > 0) store((tile - 1) * TILE, 1 - buffer);
            }
            __syncthreads();
        }
        if (steps && boxes && px.rank + 1 < px.world) {
            #pragma unroll
            for (int i = 0; i < 4 * GROUPS; ++i) {
                const uint2 both = make_uint2(__float_as_uint(state[0][i]), __float_as_uint(state[1][i]));
                px_st_ll16(px_at(px, px.rank + 1, box) + i * 32 * WARPS, both, turn);
            }
        }
    }
    if (s.share < s.tokens) px_turn_barrier(px, blockIdx.x, turn);  // the results of all ranks have arrived
}
"""
MOST_CHANNELS = 256


def groups_for(channels: int) -> int:
    """GROUPS of the kernel for up to MOST_CHANNELS channels. A lane has 4 * GROUPS channels of each of its columns."""
    return 1 if channels <= 64 else 2 if channels <= 128 else 4


def items_of(v: torch.Tensor, threads: int) -> int:
    """The number of column slices of v [B, T, H, V] for blocks with `threads` / 2 stepping threads, at least one."""
    return max(v.shape[0] * v.shape[2] * -(-v.shape[3] // (threads // 16)), 1)


def boxes_for(v: torch.Tensor, channels: int, threads: int) -> tuple[int, ...]:
    """The shape of `boxes` for v [B, T, H, V], in int32."""
    return (2, items_of(v, threads), 2 * threads * groups_for(channels), 4)


def by_steps(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decay: torch.Tensor, strength: torch.Tensor, state: torch.Tensor
) -> torch.Tensor:
    """Does the same by library calls, for normalised and scaled q and k [B, T, H, K].

    v: [B, T, H, V]; decay: [B, T, H, K] or [B, T, H, 1]; strength: [B, T, H]; state: [B, H, K, V], which becomes the
    last one. Returns [B, T, H, V].
    """
    outputs = torch.empty_like(v)
    for t in range(v.shape[1]):
        state.mul_(decay[:, t, :, :, None])
        fresh = strength[:, t, :, None] * (v[:, t] - (k[:, t, :, None] @ state).squeeze(2))
        state.add_(k[:, t, :, :, None] * fresh[:, :, None])
        outputs[:, t] = (q[:, t, :, None] @ state).squeeze(2)
    return outputs
