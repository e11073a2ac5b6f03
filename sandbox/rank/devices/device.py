"""One rank's device as the ranks' side sees it: all that differs between kinds, with torch.

A kind is a module or package beside this one, with a function `device(rank)`. Its name stands in `rank_module` of the same kind
on the referee's side (sandbox/machine/devices/).
"""

import mmap
from typing import Protocol

import torch


class RankGate(Protocol):
    """A rank's side of the starting gate."""

    def shut(self, epoch: int) -> None:
        """Everything queued from here on waits for the referee, and then for all ranks of the world (collective)."""

    def mark(self, epoch: int) -> None:
        """Says that everything queued so far on this stream is done."""


class EventTimer(Protocol):
    """Times of what is queued on a device, by its own events."""

    def hold(self, us: float) -> None:
        """What is queued from here on waits so long on the device."""

    def start(self) -> None:
        """Right before what is timed is queued."""

    def stop(self) -> bool:
        """Right after it. Whether all of it was queued before the first of it began."""

    def us(self) -> float:
        """Microseconds from start to stop, once the device has done everything."""


class Device(Protocol):
    """One rank's device."""

    torch_device: torch.device
    matmul_size: int
    """Rows of the square matrices that calibration multiplies."""
    copy_bytes: int
    """Bytes that calibration copies."""
    holds_results: bool
    """Whether copying a result is so dear that results are held and copied many at a time."""
    sealed: bool
    """Whether arenas are memory that others map with the rights they are given. Otherwise they are host memory, which a
    contender copies in and out by itself."""

    def can_seal(self) -> bool:
        """Whether this device's driver can do that."""

    def receive(self, size: int) -> None:
        """Where arenas are not sealed: copies the first bytes of the inputs to where the kernel reads them."""

    def deliver(self, size: int) -> None:
        """Where arenas are not sealed: copies the first bytes of the outputs to where the trusted side reads them."""

    def join(self, rank: int, world: int, folder: str) -> None:
        """Brings up the device and the process group (collective)."""

    def warm_kit(self) -> None:
        """Does in advance what a kernel that uses the kit would wait for."""

    def input_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """A descriptor to hand out and this rank's writable view, flat uint8; nobody else can write."""

    def output_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """A descriptor to hand out and this rank's view, flat uint8; both sides may write."""

    def map_input(self, fd: int, size: int) -> torch.Tensor:
        """A read-only view of an input arena."""

    def map_output(self, fd: int, size: int) -> torch.Tensor:
        """A writable view of an output arena."""

    def complete(
        self, to: torch.Tensor | None, source: torch.Tensor, ranges: list[tuple[int, int]], watch: bool
    ) -> float:
        """Copies byte ranges from one input arena to another, the last thing before a batch.

        to: None where everything is in place already: then it only leaves the caches as the copy would.
        watch: look for other work on this device; returns the longest moment in microseconds that it took.
        """

    def keep_blocks_whole(self) -> None:
        """Has the allocator take nothing small out of cached blocks of a gigabyte: the next inputs need them whole."""

    def memory_bytes(self) -> int:
        """Memory of the device in all; 0 where ranks share the machine's."""

    def peak_bytes(self) -> int:
        """The most that tensors have taken on the device since this was last asked, beyond what they took then; 0 where ranks
        share the machine's memory."""

    def free_cache(self) -> None:
        """Gives memory back that the framework only keeps for itself."""

    def release(self, arena: torch.Tensor) -> None:
        """Gives an arena of this rank's back; its tensor must not be used any more."""

    def release_all(self) -> None:
        """Gives back whatever is left of this rank's arenas."""

    def synchronize(self) -> None:
        """Waits for everything that was launched."""

    # --- only where the kind has a gate ----------------------------------------------------------------------

    def gate(self, page: mmap.mmap, rank: int) -> RankGate:
        """This rank's side of the gate whose page this is."""

    def event_timer(self) -> EventTimer:
        """For measurements that the gate's times are held against."""

    # --- calibration -----------------------------------------------------------------------------------------

    def link_peaks(self) -> dict[str, float]:
        """What the way to the other ranks can do, "link" among it; see sandbox.rank.calibration (collective)."""
