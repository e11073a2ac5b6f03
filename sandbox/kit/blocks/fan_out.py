"""Broadcast of a list of tensors from rank 0 into a flat symmetric buffer of every rank, in one launch.

    from sandbox.kit import symm
    from sandbox.kit.blocks.fan_out import fan_out

    flat = symm.out(count, dtype, "weights", ring=2)
    fan_out([w1, b1, w2, b2], flat, symm.connect())        # flat: w1, b1, w2, b2 of rank 0, on every rank

Rank 0 sends each byte once: every other rank receives a share and forwards it, piece by piece, to the rest.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch

from sandbox.kit import cuda, tables
from sandbox.kit.symmetric_memory.team import Team

SOURCE = r"""
// few, many: the address of tensor t at rank 0 is number 2t, its length number 2t + 1. y: the tensors one after another,
// symmetric. Words have 16 bytes and do not cross a border between tensors.
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
// Block b has the same words of every share on all ranks. In slot `base` + BLOCKS + b a rank says how many pieces of a share
// have arrived; a launch has numbers for 7 of them.
#define PIECE(turn, count) (8 * (turn) + (count))
template <class T> static __device__ void fan(const Px& px, const PxNumbers& few, const i64* many, T* y, int tensors, i64 words,
        int pieces, u32 base, u32 most_blocks) {
    const u32 slot = base + blockIdx.x, passed = slot + most_blocks, turn = px_turn(px, slot);
    px_enter(px, slot, turn);  // the buffer of two launches ago is free at all ranks
    const i64 step = (i64)gridDim.x * blockDim.x, first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const int helpers = max(px.world - 1, 1), helper = px.rank - 1, peer = px_thread();
    const i64 share = (words + helpers - 1) / helpers, length = (share + pieces - 1) / pieces;
    for (int piece = 0; piece < pieces; ++piece) {
        const i64 last = min((piece + 1) * length, share);
        if (px.rank == 0) {
            for (int to = 0; to < helpers; ++to)
                for (i64 i = piece * length + first; i < last; i += 4 * step) {
                    Place<T> place[4];
                    uint4 part[4];
                    #pragma unroll  // all loads are in flight before the first store
                    for (int k = 0; k < 4; ++k) {
                        const i64 word = i + k * step;
                        place[k] = place_of(few, many, tensors, y, word < last ? to * share + word : words);
                        part[k] = px_ld_part(place[k].from, place[k].first, place[k].n);
                    }
                    #pragma unroll
                    for (int k = 0; k < 4; ++k) {
                        if (px.world > 1) px_st_part(px_at(px, to + 1, place[k].to), place[k].first, place[k].n, part[k]);
                        px_st_part(place[k].to, place[k].first, place[k].n, part[k]);
                    }
                }
            __syncthreads();
            if (peer > 0 && peer < px.world) px_signal(px, peer, passed, PIECE(turn, piece + 1));
        } else if (helpers > 1) {
            if (peer == 0) px_wait(px, 0, passed, PIECE(turn, piece + 1));
            __syncthreads();  // this piece of the own share has arrived
            for (i64 i = piece * length + first; i < last; i += step) {
                const Place<T> place = place_of(few, many, tensors, y, helper * share + i);
                const uint4 part = px_ld_part(place.to, place.first, place.n);
                for (int away = 1; away < helpers; ++away) {
                    const int to = 1 + (helper + away) % helpers;
                    px_st_part(px_at(px, to, place.to), place.first, place.n, part);
                }
            }
        }
    }
    if (px.rank == 0) return;
    __syncthreads();
    if (peer < px.world && peer != px.rank) {
        if (peer > 0) px_signal(px, peer, passed, PIECE(turn, pieces));
        px_wait(px, peer, passed, PIECE(turn, pieces));  // the peer's share has arrived
    }
}
"""
ENTRY = r"""
extern "C" __global__ void __launch_bounds__(512) fan_out(Px px, PxNumbers few, const i64* many, TYPE* y, int tensors,
        i64 words, int pieces, u32 base, u32 most_blocks) {
    fan<TYPE>(px, few, many, y, tensors, words, pieces, base, most_blocks);
}
"""
TYPES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "float"}
BLOCKS, THREADS = 128, 512
LEAST = 4
"""Words that a thread has of a piece."""


@functools.cache
def kernel_for(dtype: torch.dtype) -> Any:
    """Compiled when it is first asked for, so inside a first call."""
    return cuda.compile(SOURCE + ENTRY.replace("TYPE", TYPES[dtype])).fan_out


def fan_out(
    tensors: Sequence[torch.Tensor], flat: torch.Tensor, team: Team, base: int = 0, most_blocks: int = BLOCKS
) -> None:
    """Copies rank 0's tensors, one after another, into `flat` of every rank.

    tensors: any shapes, one dtype; the same shapes on all ranks, of which only rank 0's values count. flat: symmetric, as many
    elements, one of two buffers used in turn. base: the first of 2 * BLOCKS signal slots that this call has for itself: launches
    that may run at the same time have slots of their own. most_blocks: fewer leave multiprocessors to other kernels. Collective.
    """
    if not flat.is_cuda:
        if team.rank == 0:
            torch.cat([tensor.reshape(-1) for tensor in tensors], out=flat)
        team.barrier()
        if team.rank:
            flat.copy_(team.peers(flat)[0])
        return
    given = [tensor.contiguous() for tensor in tensors]
    few, many = tables.numbers([n for t in given for n in (t.data_ptr(), t.numel())], flat.device)
    each = 16 // flat.element_size()
    words = sum(-(-tensor.numel() // each) for tensor in given)
    helpers = max(team.world - 1, 1)
    blocks = min(max(-(-words // (helpers * THREADS)), 1), most_blocks, BLOCKS)
    pieces = 1 if helpers == 1 else min(max(words // (helpers * blocks * THREADS * LEAST), 1), 7)
    kernel = kernel_for(flat.dtype)[blocks, THREADS]
    kernel(team.px, few, many, flat.data_ptr(), len(given), words, pieces, base, BLOCKS)
