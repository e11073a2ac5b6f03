'''The gated delta rule token by token in one launch: states in registers, warps that step and warps that prepare.

    from sandbox.kit import cuda
    from sandbox.kit.blocks import delta_rule

    kernel = cuda.compile(delta_rule.SOURCE + r"""struct Gate { ... };
    extern "C" __global__ void __launch_bounds__(256) recur(Px px, const bf16* q, ...) {
        delta_rule<bf16, 2, Gate>(px, q, ...);
    }""").recur
    kernel[delta_rule.blocks_for(v, 264), delta_rule.LANES](symm.px, q, ...)

Per head, with a state S [K][V]: S = diag(decay) S; u = strength (v - S^T k); S = S + k u^T; o = S^T q. Before that q and k are
divided by their norms, and q by sqrt(K). The columns of S are independent. A token costs one reduction, because
o = S'^T q + (k . q) u, where S' is the state after the decay and before the correction.
'''

from typing import Any

import torch

SOURCE = r"""
// A block has 16 columns of one head's state. Its warps 0-3 step from token to token with four columns each: 16 lanes share a
// pair of columns, and a lane has the channels 4 (sub + 16 g) + 0..3 of both in registers. Warps 4-7 prepare the next TILE
// tokens in shared memory meanwhile, and store the results of the last ones. So the steps wait for no global memory.
struct Steps { i64 batch, tokens, share, heads, value_heads, channels, columns, all_heads, first_head; };
template <class T> struct __align__(4 * sizeof(T)) Four { T at[4]; };
template <class T> static __device__ Four<T> four_of(const T* row, int first, int n) {
    if (first + 4 <= n && (u64)(row + first) % sizeof(Four<T>) == 0) return *(const Four<T>*)(row + first);
    Four<T> four;
    #pragma unroll
    for (int e = 0; e < 4; ++e) four.at[e] = first + e < n ? row[first + e] : from_float<T>(0);
    return four;
}
// q, k: [batch][tokens][heads][channels]; v: [batch][tokens][value_heads][columns]; beta: [batch][tokens][value_heads]; gate:
// the same, with channels behind it if Gate::BY_CHANNEL; a_log: [value_heads]; dt_bias: the same, or with channels.
// Gate: decay(gate, exp(a_log), dt_bias), strength(beta), least(): the smallest norm.
// out: [batch][share][all_heads][columns]. With share < tokens it is symmetric, and token t goes to member t / share. Value
// head j is written as head first_head + j.
// boxes: words of two numbers with flags, symmetric, two turns: the states that come from the member before. 0: states begin at
// zero.
template <class T, int GROUPS, class Gate> static __device__ void delta_rule(const Px& px, const T* q, const T* k, const T* v,
        const T* gate, const T* beta, const bf16* a_log, const bf16* dt_bias, T* out, uint4* boxes, const Steps& s) {
    const int TILE = 16 / GROUPS, MINE = TILE / 4, FOURS = 16 * GROUPS, EACH = (FOURS + 31) / 32, PART = 16 / sizeof(T);
    __shared__ float4 keys[2][TILE][FOURS], queries[2][TILE][FOURS], decays[2][TILE][Gate::BY_CHANNEL ? FOURS : 1];
    __shared__ float4 numbers[2][TILE];  // strength, k . q, and the decay if all channels have the same
    __shared__ float values[2][TILE][16], results[2][TILE][16];
    const bool steps_tokens = threadIdx.x < 128;
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, sub = lane % 16;
    const int column = warp * 4 + lane / 16 * 2, token = thread / (16 / PART), part = thread % (16 / PART) * PART;
    const i64 slices = (s.columns + 15) / 16, items = s.batch * s.value_heads * slices, tiles = (s.tokens + TILE - 1) / TILE;
    const u32 turn = px_turn(px, blockIdx.x);
    // Behind it the states of two launches ago have been taken, and their boxes are free again.
    if (boxes) px_enter(px, blockIdx.x, turn);
    for (i64 item = blockIdx.x; item < items; item += gridDim.x) {
        const i64 slice = item % slices, head = item / slices % s.value_heads, b = item / slices / s.value_heads;
        const i64 first = slice * 16, shared_head = head * s.heads / s.value_heads;
        float state[2][4 * GROUPS] = {};
        uint4* box = boxes + ((turn & 1) * items + item) * (512 * GROUPS) + thread;
        if (steps_tokens && boxes && px.rank > 0) {
            #pragma unroll
            for (int i = 0; i < 4 * GROUPS; ++i) {
                const uint2 pair = px_ld_ll16(box + i * 128, turn);
                state[0][i] = __uint_as_float(pair.x), state[1][i] = __uint_as_float(pair.y);
            }
        }
        const float slope = expf(to_float(a_log[head])), scale = rsqrtf((float)s.channels);
        Four<T> next_q[MINE][EACH], next_k[MINE][EACH], next_gate[MINE][EACH];
        T next_beta[MINE], next_number[MINE];
        uint4 next_v = make_uint4(0, 0, 0, 0);
        const auto load = [&](i64 begin) {
            #pragma unroll
            for (int m = 0; m < MINE; ++m) {
                const i64 t = b * s.tokens + min(begin + 4 * m + warp, s.tokens - 1), row = t * s.value_heads + head;
                #pragma unroll
                for (int e = 0; e < EACH; ++e) {
                    const int at = 4 * (lane + 32 * e);
                    next_q[m][e] = four_of(q + (t * s.heads + shared_head) * s.channels, at, s.channels);
                    next_k[m][e] = four_of(k + (t * s.heads + shared_head) * s.channels, at, s.channels);
                    if (Gate::BY_CHANNEL) next_gate[m][e] = four_of(gate + row * s.channels, at, s.channels);
                }
                next_beta[m] = beta[row];
                if (!Gate::BY_CHANNEL) next_number[m] = gate[row];
            }
            const i64 t = b * s.tokens + begin + token;
            if (token < TILE && begin + token < s.tokens)
                next_v = px_ld_part(v + (t * s.value_heads + head) * s.columns, first + part, s.columns);
        };
        const auto prepare = [&](i64 begin, int buffer) {  // what was loaded; tokens beyond the end change nothing
            #pragma unroll
            for (int m = 0; m < MINE; ++m) {
                const int place = 4 * m + warp;
                const bool is_there = begin + place < s.tokens;
                float qq = 0, kk = 0, qk = 0;
                #pragma unroll
                for (int e = 0; e < 4 * EACH; ++e) {
                    const float from_q = to_float(next_q[m][e / 4].at[e % 4]), from_k = to_float(next_k[m][e / 4].at[e % 4]);
                    qq += from_q * from_q, kk += from_k * from_k, qk += from_q * from_k;
                }
                qq = px_warp_sum(qq), kk = px_warp_sum(kk), qk = px_warp_sum(qk);
                const float by_q = is_there ? scale / fmaxf(sqrtf(qq), Gate::least()) : 0;
                const float by_k = is_there ? 1 / fmaxf(sqrtf(kk), Gate::least()) : 0;
                #pragma unroll
                for (int e = 0; e < EACH; ++e) {
                    const int at = lane + 32 * e;
                    if (at >= FOURS) continue;
                    float x[4], y[4], d[4];
                    #pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        x[i] = to_float(next_q[m][e].at[i]) * by_q, y[i] = to_float(next_k[m][e].at[i]) * by_k;
                        const int channel = 4 * at + i;
                        d[i] = 1;
                        if (!Gate::BY_CHANNEL || !is_there || channel >= s.channels) continue;
                        const float bias = to_float(dt_bias[head * s.channels + channel]);
                        d[i] = Gate::decay(to_float(next_gate[m][e].at[i]), slope, bias);
                    }
                    queries[buffer][place][at] = {x[0], x[1], x[2], x[3]};
                    keys[buffer][place][at] = {y[0], y[1], y[2], y[3]};
                    if (Gate::BY_CHANNEL) decays[buffer][place][at] = {d[0], d[1], d[2], d[3]};
                }
                if (lane == 0) {
                    float decay = 1;
                    if (!Gate::BY_CHANNEL && is_there)
                        decay = Gate::decay(to_float(next_number[m]), slope, to_float(dt_bias[head]));
                    numbers[buffer][place] = {is_there ? Gate::strength(to_float(next_beta[m])) : 0, qk * by_q * by_k, decay, 0};
                }
            }
            float unpacked[8];
            px_unpack<T>(next_v, unpacked);
            if (token < TILE)
                for (int e = 0; e < PART; ++e) values[buffer][token][part + e] = unpacked[e];
        };
        const auto store = [&](i64 begin, int buffer) {
            const i64 t = begin + token;
            if (token >= TILE || t >= s.tokens) return;
            T* to = s.share < s.tokens ? px_at(px, (int)(t / s.share), out) : out;
            to += ((b * s.share + t % s.share) * s.all_heads + s.first_head + head) * s.columns;
            px_st_part(to, first + part, s.columns, px_pack<T>(results[buffer][token] + part));
        };
        const auto step = [&](int t, int buffer) {
            const float4 number = numbers[buffer][t];
            float key[4 * GROUPS], query[4 * GROUPS], by_key[2] = {}, by_query[2] = {};
            #pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
                const float4 y = keys[buffer][t][sub + 16 * g], x = queries[buffer][t][sub + 16 * g];
                float4 d = {number.z, number.z, number.z, number.z};
                if (Gate::BY_CHANNEL) d = decays[buffer][t][sub + 16 * g];
                const float a[4] = {y.x, y.y, y.z, y.w}, c[4] = {x.x, x.y, x.z, x.w}, f[4] = {d.x, d.y, d.z, d.w};
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int i = 4 * g + e;
                    key[i] = a[e], query[i] = c[e];
                    #pragma unroll
                    for (int n = 0; n < 2; ++n) {
                        state[n][i] *= f[e];
                        by_key[n] += state[n][i] * key[i];
                        by_query[n] += state[n][i] * query[i];
                    }
                }
            }
            #pragma unroll
            for (int away = 8; away > 0; away /= 2) {
                #pragma unroll
                for (int n = 0; n < 2; ++n) {
                    by_key[n] += __shfl_xor_sync(0xffffffffu, by_key[n], away);
                    by_query[n] += __shfl_xor_sync(0xffffffffu, by_query[n], away);
                }
            }
            #pragma unroll
            for (int n = 0; n < 2; ++n) {
                const float fresh = number.x * (values[buffer][t][column + n] - by_key[n]);
                #pragma unroll
                for (int i = 0; i < 4 * GROUPS; ++i) state[n][i] += key[i] * fresh;
                if (sub == 0) results[buffer][t][column + n] = by_query[n] + number.y * fresh;
            }
        };
        if (!steps_tokens && tiles > 0) load(0);
        for (i64 tile = -1; tile <= tiles; ++tile) {
            const int buffer = tile & 1;
            if (steps_tokens) {
                if (tile >= 0 && tile < tiles) {
                    #pragma unroll
                    for (int t = 0; t < TILE; ++t) step(t, buffer);
                }
            } else {
                if (tile + 1 < tiles) prepare((tile + 1) * TILE, 1 - buffer);
                if (tile + 2 < tiles) load((tile + 2) * TILE);
                if (tile > 0) store((tile - 1) * TILE, 1 - buffer);
            }
            __syncthreads();
        }
        if (steps_tokens && boxes && px.rank + 1 < px.world) {
            #pragma unroll
            for (int i = 0; i < 4 * GROUPS; ++i) {
                const uint2 pair = make_uint2(__float_as_uint(state[0][i]), __float_as_uint(state[1][i]));
                px_st_ll16(px_at(px, px.rank + 1, box) + i * 128, pair, turn);
            }
        }
    }
    if (s.share < s.tokens) px_meet(px, blockIdx.x, turn);  // everybody's results have arrived
}
"""
LANES = 256
TYPES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "float"}
MOST_CHANNELS = 256


def groups_for(channels: int) -> int:
    """GROUPS of the kernel for so many channels, up to MOST_CHANNELS: lanes have four times as many of each column."""
    return 1 if channels <= 64 else 2 if channels <= 128 else 4


def items_of(v: torch.Tensor) -> int:
    """How many slices of 16 columns v [B, T, H, V] has: the work of the blocks."""
    return v.shape[0] * v.shape[2] * -(-v.shape[3] // 16)


def blocks_for(v: torch.Tensor, most: int) -> int:
    """The grid for v [B, T, H, V], of up to `most` blocks."""
    return min(max(items_of(v), 1), most)


def boxes_for(v: torch.Tensor, channels: int) -> tuple[int, ...]:
    """The shape of `boxes` for v [B, T, H, V], in int32."""
    return (2, items_of(v), 512 * groups_for(channels), 4)


def by_steps(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decay: torch.Tensor, strength: torch.Tensor, state: Any
) -> torch.Tensor:
    """The same by library calls, for normalised and scaled q and k [B, T, H, K]; state [B, H, K, V] becomes the last one.

    v: [B, T, H, V]; decay: [B, T, H, K] or [B, T, H, 1]; strength: [B, T, H]. Returns [B, T, H, V].
    """
    outputs = torch.empty_like(v)
    for t in range(v.shape[1]):
        state.mul_(decay[:, t, :, :, None])
        fresh = strength[:, t, :, None] * (v[:, t] - (k[:, t, :, None] @ state).squeeze(2))
        state.add_(k[:, t, :, :, None] * fresh[:, :, None])
        outputs[:, t] = (q[:, t, :, None] @ state).squeeze(2)
    return outputs
