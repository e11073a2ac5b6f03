"""The ranks' side of a kind of device: everything that differs between kinds and needs torch.

A kind is a module or package beside this one, with a function `device(rank)`. On the referee's side the same kind has
its name as `rank_module` (sandbox/machine/devices/).
"""

import mmap
from typing import Protocol

import torch

from sandbox.rank.devices.transfer_ways import Ways


class RankGate(Protocol):
    """A rank's side of the starting gate."""

    def shut(self, epoch: int) -> None:
        """Delays later work until the referee opens the gate and all ranks have reached it (collective)."""

    def mark(self, epoch: int) -> None:
        """Reports to the referee when all work on this stream is done."""


class Device(Protocol):
    """One rank's device."""

    torch_device: torch.device
    matmul_size: int
    """Rows of the square matrices that calibration multiplies."""
    copy_bytes: int
    """Bytes that calibration copies."""
    holds_results: bool
    """Whether launching a copy is so expensive that output copies are deferred."""
    sealed: bool
    """Whether arenas are shared memory with restricted rights. Otherwise they are host memory, which the contender copies."""

    def can_seal(self) -> bool:
        """Whether this device supports sealed arenas."""

    def receive(self, size: int) -> None:
        """Copies the first bytes of unsealed inputs to where the kernel reads them."""

    def deliver(self, size: int) -> None:
        """Copies the first bytes of unsealed outputs to where the trusted side reads them."""

    def join(self, rank: int, world: int, folder: str, *, lazy: bool = False) -> None:
        """Brings up the device and the process group (collective). lazy: connections are made when they are first used."""

    def warm_kit(self) -> None:
        """Loads in advance what a kernel needs to use the kit."""

    def input_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """Makes an arena, read-only for other processes. Returns a descriptor and a writable view, flat uint8."""

    def output_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """Makes an arena, writable for other processes, too. Returns a descriptor and a writable view, flat uint8."""

    def map_input(self, fd: int, size: int) -> torch.Tensor:
        """A read-only view of an input arena."""

    def map_output(self, fd: int, size: int) -> torch.Tensor:
        """A writable view of an output arena."""

    def complete(
        self, to: torch.Tensor | None, source: torch.Tensor, ranges: list[tuple[int, int]], watch: bool
    ) -> float:
        """Copies byte ranges from one input arena to another, right before a batch.

        to: None if everything is in place; the caches are then left as after a copy.
        watch: measure foreign work on this device; returns the longest one in microseconds.
        """

    def keep_blocks_whole(self) -> None:
        """Prevents the allocator from splitting cached blocks of 1 GiB, which the next inputs need whole."""

    def memory_bytes(self) -> int:
        """Total memory of the device; 0 if ranks share the machine's memory."""

    def peak_bytes(self) -> int:
        """Peak bytes of tensors since the last call, beyond the bytes at that time; 0 if ranks share the machine's memory."""

    def free_cache(self) -> None:
        """Frees memory that the framework and its libraries cache."""

    def free_blocks(self, beyond: int) -> None:
        """Frees the blocks that the framework's allocator caches, if they take more than `beyond` bytes."""

    def release(self, arena: torch.Tensor) -> None:
        """Frees an arena of this rank. Its tensor must not be used afterwards."""

    def release_all(self) -> None:
        """Frees all arenas of this rank."""

    def synchronize(self) -> None:
        """Waits for all launched work."""

    # --- only where the kind has a gate ----------------------------------------------------------------------

    def gate(self, page: mmap.mmap, rank: int) -> RankGate:
        """This rank's side of the gate with this page."""

    # --- calibration -----------------------------------------------------------------------------------------

    def link_peaks(self) -> dict[str, float]:
        """Peaks of the link to other ranks, with the key "link"; see sandbox.rank.calibration (collective)."""

    def transfer_ways(self) -> Ways:
        """The ways to move a block between two ranks. Raises CompileError if they cannot be compiled here."""
