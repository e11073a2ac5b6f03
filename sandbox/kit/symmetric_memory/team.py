"""A team: the world or some of its ranks, with its own buffers, signals, barriers and epochs."""

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import layout
from sandbox.kit.errors import BarrierTimeout, SymmetricMemoryError, ranks_text
from sandbox.kit.symmetric_memory.heap import Heap
from sandbox.kit.symmetric_memory.host_signals import Signals

Shape = int | Sequence[int]
RINGS_ON_GPUS, RINGS = (65, 2), (4, 2)
"""Number of buffers that results use in turn: the larger one if half of the heap can hold them. The judge copies
results in groups of up to 64, unless a later call writes to one of them. Then it copies each before the next call, in
the timed window."""
recording = False
"""Whether a call is being recorded (sandbox.kit.recorded)."""
_MAIL = struct.Struct(f"<QQ{layout.MAIL_BYTES - 16}s")


class Team:
    """Some ranks of the world. Ranks and peers are positions in the team, 0..world-1, in order of global rank."""

    def __init__(
        self,
        host_heap: Heap,
        heap: Heap,
        signals: Signals,
        ranks: Sequence[int],
        host: Signals | None = None,
        name: str = "symm",
    ) -> None:
        """host_heap: the processes' own memory, for their agreements. name: the module of the kit, for messages."""
        self._name = name
        self.ranks = tuple(sorted(ranks))
        self.world = len(self.ranks)
        self.rank = self.ranks.index(heap.rank)
        self.mask = layout.team_mask(self.ranks)
        self._host_heap = host_heap
        self._heap = heap
        self._signals = signals
        # The host processes agree on allocations, wherever the heap is.
        self._host = host or signals
        host_pads = [host_heap.pads[r] + self.mask * layout.PAD_BYTES for r in self.ranks]
        self._host_px = layout.make_px(host_pads, host_pads, self.ranks, self.rank)
        self.px: layout.Px = layout.make_px(
            [heap.addresses[r] for r in self.ranks],
            [heap.pads[r] + self.mask * layout.PAD_BYTES for r in self.ranks],
            self.ranks,
            self.rank,
        )
        self._rings = RINGS_ON_GPUS if heap.parts[heap.rank].is_cuda else RINGS
        self._epoch = 0
        self._barriers = 0
        self._agreements = 0
        self._buffers: dict[tuple[Any, ...], list[torch.Tensor]] = {}
        self._turns: dict[tuple[Any, ...], int] = {}
        self._peers: dict[tuple[Any, ...], list[torch.Tensor]] = {}
        self._teams: dict[int, Team] = {self.mask: self}

    def order(self) -> list[int]:
        """All members, starting with this one: me, me+1, ... With this order, not all ranks use rank 0 first."""
        return [(self.rank + step) % self.world for step in range(self.world)]

    # --- buffers ---

    def empty(self, shape: Shape, dtype: torch.dtype, tag: str | None = None) -> torch.Tensor:
        """This rank's part of a symmetric buffer, zero at first.

        The same (shape, dtype, tag) returns the same buffer again, with its contents. Collective the first time: all
        members must ask for the same buffers in the same order.
        """
        return self._buffer(shape, dtype, tag, "empty", (1,))

    def stage(self, x: torch.Tensor, tag: str | None = None) -> torch.Tensor:
        """Copies x into symmetric memory and returns the copy, for peers to read after a barrier.

        Alternates between two buffers, so one barrier per call is enough: see `sandbox.kit.symm`.
        """
        staged = self._buffer(x.shape, x.dtype, tag, "stage", (2,))
        staged.copy_(x)
        return staged

    def out(self, shape: Shape, dtype: torch.dtype, tag: str | None = None, ring: int | None = None) -> torch.Tensor:
        """A symmetric buffer for a result that peers write into, the next of a ring of `ring` buffers.

        The buffer may be returned from solution(): it is used again `ring` calls later. ring: None takes 65 on GPUs and 4 on CPU
        ranks if half of the heap can hold them, else 2.
        """
        rings = (ring,) if ring is not None else self._rings
        return self._buffer(shape, dtype, tag, "out", rings)

    def room(self, count: int, dtype: torch.dtype, tag: str | None = None, ring: int | None = 2) -> torch.Tensor:
        """`out` for results whose size changes from call to call: flat, with at least `count` elements.

        count: the same on all members. The number of elements is a power of two, so that not every new size needs new
        buffers. Slice what you return.
        """
        return self.out(1 << max(count - 1, 0).bit_length(), dtype, f"room {tag}", ring)

    def _buffer(
        self, shape: Shape, dtype: torch.dtype, tag: str | None, role: str, rings: tuple[int, ...]
    ) -> torch.Tensor:
        size = (shape,) if isinstance(shape, int) else tuple(shape)
        key = (role, size, dtype, tag)
        turns = self._buffers.get(key)
        if turns is None:
            turns = self._buffers[key] = self._allocate(size, dtype, role, tag, rings)
            self._turns[key] = 0
        if recording and len(turns) > 1:
            raise SymmetricMemoryError(f"{role}() takes turns: pass its buffer to the recorded function as an argument")
        turn = self._turns[key]
        self._turns[key] = turn + 1 if turn + 1 < len(turns) else 0
        return turns[turn]

    def _allocate(
        self, size: tuple[int, ...], dtype: torch.dtype, role: str, tag: str | None, rings: tuple[int, ...]
    ) -> list[torch.Tensor]:
        """Allocates buffers of one kind that are used in turn.

        rings: possible numbers of them, the best first; the last is taken if none fits.
        """
        what = f"{role}({list(size)}, {str(dtype).removeprefix('torch.')}, tag={tag!r})"
        nbytes = dtype.itemsize
        for extent in size:
            if extent < 0:
                raise SymmetricMemoryError(f"negative extent in the shape of {what}")
            nbytes *= extent
        offset = self._agree(nbytes, what)
        each = -(-nbytes // layout.ALIGN) * layout.ALIGN
        fitting = [ring for ring in rings if offset + ring * each <= self._heap.bytes // 2]
        ring = fitting[0] if fitting else rings[-1]
        whole = self._heap.take(offset, (ring - 1) * each + nbytes, self.mask, what)
        return [whole[n * each : n * each + nbytes].view(dtype).view(size) for n in range(ring)]

    def _agree(self, nbytes: int, what: str) -> int:
        """An offset that is free on all members. Raises SymmetricMemoryError if they ask for different buffers."""
        mine = _MAIL.pack(self._heap.used, nbytes, what.encode()[: layout.MAIL_BYTES - 16])
        letters = list(map(_MAIL.unpack, self._exchange(mine, what, " is collective the first time")))
        texts = [text.rstrip(b"\0").decode(errors="replace") for _, _, text in letters]
        for rank, text in zip(self.ranks, texts, strict=True):
            if text != texts[self.rank]:
                raise SymmetricMemoryError(
                    f"ranks ask for different buffers: rank {self.ranks[self.rank]} for {texts[self.rank]}, "
                    f"rank {rank} for {text}; symmetric buffers need the same shapes in the same order "
                    "everywhere (size them for the largest rank)"
                )
        return max(int(used) for used, _, _ in letters)

    def peers(self, t: torch.Tensor) -> list[torch.Tensor]:
        """The same tensor in every member's memory, indexed by member. Views keep their strides.

        Entry `rank` is t's own memory.
        """
        if not t.numel():
            return [t] * self.world  # torch gives it no address
        key = (t.data_ptr(), t.dtype, t.shape, t.stride())
        found = self._peers.get(key)
        if found is None:
            offset = self._heap.offset_of(t, self.mask)
            found = [
                self._heap.parts[rank][offset : offset + _span(t)].view(t.dtype).as_strided(t.shape, t.stride())
                for rank in self.ranks
            ]
            if len(self._peers) > 4096:
                self._peers.clear()
            self._peers[key] = found
        return list(found)

    def ptrs(self, t: torch.Tensor) -> list[int]:
        """Addresses of `peers(t)`."""
        offset = self._heap.offset_of(t, self.mask)
        return [self._heap.addresses[rank] + offset for rank in self.ranks]

    # --- barriers and signals ---

    def next_epoch(self) -> int:
        """1, 2, 3...: a number for the barriers and signals of one call. Every member must take equally many."""
        self._epoch = (self._epoch + 1) & layout.EPOCH_MASK
        return self._epoch

    def barrier(self, timeout_s: float = 10.0) -> None:
        """Waits for all members. What they wrote before is visible afterwards.

        Raises BarrierTimeout with the missing ranks.
        """
        self._barriers = (self._barriers + 1) & layout.EPOCH_MASK
        missing = self._signals.barrier(self.px, layout.BARRIER_SLOT, self._barriers, round(timeout_s * 1000))
        if missing:
            self._fail(missing, timeout_s, f"{self._name}.barrier; do all ranks make the same calls?")

    def signal(self, peer: int, slot: int, value: int) -> None:
        """Sets this rank's word of `slot` (0..1007) at `peer`, a u32 that must only grow."""
        self._signals.signal(self.px, self._member(peer), _user_slot(slot), value & layout.EPOCH_MASK)

    def wait(self, peer: int, slot: int, value: int, timeout_s: float = 10.0) -> None:
        """Waits until `peer` has signalled `value` or a later one in `slot`. Raises BarrierTimeout."""
        arrived = self._signals.wait(
            self.px, self._member(peer), _user_slot(slot), value & layout.EPOCH_MASK, round(timeout_s * 1000)
        )
        if not arrived:
            rank = self.ranks[peer]
            raise BarrierTimeout(f"rank {rank} did not signal {value} in slot {slot} within {timeout_s:g} s", [rank])

    def sub(self, ranks: Sequence[int] | dist.ProcessGroup) -> "Team":
        """The team of some ranks (global ranks, or a process group), which include this one.

        The same ranks give the same team.
        """
        chosen = dist.get_process_group_ranks(ranks) if isinstance(ranks, dist.ProcessGroup) else list(ranks)
        if self._heap.rank not in chosen:
            raise SymmetricMemoryError(
                f"rank {self._heap.rank} is not in the team {chosen}; only members may ask for it"
            )
        if len(set(chosen)) != len(chosen) or not set(chosen) <= set(range(len(self._heap.parts))):
            raise SymmetricMemoryError(f"{chosen} is no set of ranks of this world of {len(self._heap.parts)}")
        mask = layout.team_mask(chosen)
        if mask not in self._teams:
            team = Team(self._host_heap, self._heap, self._signals, chosen, self._host, self._name)
            team._teams = self._teams
            self._teams[mask] = team
        return self._teams[mask]

    def _member(self, peer: int) -> int:
        if not 0 <= peer < self.world:
            raise SymmetricMemoryError(f"there is no peer {peer} in a team of {self.world}")
        return peer

    def gather_numbers(self, *numbers: int) -> list[tuple[int, ...]]:
        """The numbers of all members, by member: integers that the processes know, such as the length of a tensor.

        The processes exchange 32 at a time in host memory: no GPU takes part, and queued GPU work is not waited for.
        Collective; all members pass equally many. Raises BarrierTimeout with the missing ranks after 10 s.
        """
        form, most = struct.Struct(f"<{len(numbers)}q"), layout.MAIL_BYTES
        mine = form.pack(*numbers)
        parts = [self._exchange(mine[at : at + most], "gather_numbers") for at in range(0, max(len(mine), 1), most)]
        return [form.unpack(b"".join(part)) for part in zip(*parts, strict=True)]

    def _exchange(self, mine: bytes, what: str, remark: str = "") -> list[bytes]:
        """The bytes of all members, by member: up to MAIL_BYTES, as many from each. Collective.

        what: the call, for the error if a member is missing. remark: text behind it in the first wait.
        """
        # Of two boxes: a member writes to this one again after one more barrier, before which all have read it.
        place = layout.PADS_BYTES + (2 * self.mask + self._agreements % 2) * layout.MAIL_BYTES
        mail = [self._host_heap.pads[r] + place for r in self.ranks]
        ctypes.memmove(mail[self.rank], mine, len(mine))
        self._host_barrier(10.0, f"{self._name}.{what}{remark}")
        return [ctypes.string_at(address, len(mine)) for address in mail]

    def host_barrier(self, timeout_s: float = 10.0) -> None:
        """Waits for the members' processes, not for the work that is queued on their GPUs."""
        self._host_barrier(timeout_s, "the set-up of the symmetric heap")

    def _host_barrier(self, timeout_s: float, what: str) -> None:
        self._agreements = (self._agreements + 1) & layout.EPOCH_MASK
        missing = self._host.barrier(self._host_px, layout.ALLOCATION_SLOT, self._agreements, round(timeout_s * 1000))
        if missing:
            self._fail(missing, timeout_s, what)

    def _fail(self, missing: int, timeout_s: float, what: str) -> None:
        ranks = [rank for index, rank in enumerate(self.ranks) if missing >> index & 1]
        raise BarrierTimeout(f"{ranks_text(ranks)} did not arrive within {timeout_s:g} s at {what}", ranks)


def _user_slot(slot: int) -> int:
    if not 0 <= slot < layout.USER_SLOTS:
        raise SymmetricMemoryError(f"slot {slot} is outside 0..{layout.USER_SLOTS - 1}")
    return slot


def _span(t: torch.Tensor) -> int:
    """Bytes from a tensor's first to its last element."""
    if t.numel() == 0:
        return 0
    return (1 + sum((extent - 1) * step for extent, step in zip(t.shape, t.stride(), strict=True))) * t.dtype.itemsize
