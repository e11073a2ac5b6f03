"""The kinds of device for ranks, by the value of `--device`."""

import contextlib
import os
import random
import time
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property

from sandbox.machine import gpu_counters, nvml, processes, scheduling
from sandbox.machine.devices.kind import DeviceKind, Pace
from sandbox.machine.placement import RankGpu, rank_gpus

MOVED_KIB = 1024
"""KiB over NVLink between two readings of a counter, which show copies."""
GONE_SECONDS = 5.0
"""Limit for a killed process's context to disappear. It usually takes 0.1 s."""


class Cuda(DeviceKind):
    """The kind `cuda`."""

    name = "cuda"
    rank_module = "sandbox.rank.devices.cuda.device"
    default_preset = "production"
    on_gpus = True
    ranks_name = "GPUs"
    backend = "NCCL"
    kit_language = "cuda"
    has_reference_forms = True

    arena_bytes = (16 << 30, 8 << 30)
    unsealed_arena_bytes = 1 << 30  # in host memory, and copied for every batch

    pace = Pace(batch_s=0.010, slower_s=0.030, calls=256, slots=768, pairs=12, gated_pairs=12, references=4)
    has_gate = True
    spins = True
    sees_foreign_work = True
    out_of_reach = 5e15, 2e13, 2e12

    outlives_kernels = True
    host_bytes = 6 << 30  # the CUDA context and the code loaded into it (measured: 3.5 GiB)

    def gpus(self, world: int) -> tuple[RankGpu, ...]:
        """The first GPUs of CUDA_VISIBLE_DEVICES; fewer if there are fewer."""
        return rank_gpus(world)

    def lease_names(self, world: int) -> list[str]:
        """The GPUs by the driver's numbers."""
        return [f"gpu-{gpu.minor}" for gpu in rank_gpus(world)]

    def environment(self, gpus: Sequence[RankGpu]) -> dict[str, str]:
        """Restricts CUDA to these GPUs, as 0, 1, 2..., and loads a kernel's code at its first call.

        Loading all code at the start doubles the start time of a world and takes five times the memory. A first call behind a
        closed gate would block on its code, so every call runs once before the gate closes.
        """
        found = {"CUDA_MODULE_LOADING": "LAZY"}
        if gpus and all(gpu.uuid for gpu in gpus):
            found["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in gpus)
        return found

    def device_files(self, gpus: Sequence[RankGpu]) -> tuple[str, ...]:
        """The files of these GPUs, and those that all GPUs share."""
        shared = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps")
        return (*(f"/dev/nvidia{gpu.minor}" for gpu in gpus), *shared) if gpus else ()

    def moves_bytes(self, gpus: Sequence[RankGpu]) -> bool:
        """Whether one of these GPUs, drawn at random, sends or receives over NVLink now. It takes 3 ms on an H200."""
        if len(gpus) > 1:
            minor, counter = random.choice(gpus).minor, random.choice((gpu_counters.NVLINK_TX, gpu_counters.NVLINK_RX))
            with contextlib.suppress(nvml.NvmlMissing):
                for gpu in self._driver_gpus:
                    if gpu.minor == minor:
                        before, after = (nvml.field(gpu, counter, nvml.ALL_LINKS) for _ in range(2))
                        return before is not None and after is not None and after - before > MOVED_KIB
        return False

    @cached_property
    def _driver_gpus(self) -> list[nvml.Gpu]:
        return nvml.gpus()

    def gpu_fault(self, gpus: Sequence[RankGpu], killed: Collection[int], seconds: float = GONE_SECONDS) -> str:
        """The fault that NVML shows: a context that is left after these seconds, or a GPU that needs a reset."""
        try:
            ours = [gpu for gpu in nvml.gpus() if gpu.minor in {rank.minor for rank in gpus}]
            until = time.monotonic() + seconds
            while held := [gpu.index for gpu in ours if nvml.compute_pids(gpu) & set(killed)]:
                if time.monotonic() > until:
                    return f"a killed kernel still holds GPU {', '.join(map(str, held))} after {seconds:.0f} s"
                time.sleep(0.005)
            for gpu in ours:
                if words := nvml.recovery(gpu):
                    return f"GPU {gpu.index}: {words}"
        except nvml.NvmlMissing as missing:
            # `doctor` reports that NVML is missing. The oracle world's next call still detects a broken GPU.
            return str(missing) if nvml.says_lost(missing) else ""
        return ""

    def used_by_others(self, gpus: Sequence[RankGpu]) -> bool:
        """As in the base. Processes of other containers are not seen."""
        with contextlib.suppress(nvml.NvmlMissing):
            numbers = {rank.minor for rank in gpus}
            there = set().union(*(nvml.compute_pids(gpu) for gpu in nvml.gpus() if gpu.minor in numbers))
            own = set(processes.tree(os.getpid()))
            return bool(there - own) and bool(there & own)  # else the driver counts in another PID namespace
        return False


class Cpu(DeviceKind):
    """The kind `cpu`."""

    name = "cpu"
    rank_module = "sandbox.rank.devices.device"
    default_preset = "tiny"
    on_gpus = False
    ranks_name = "CPU ranks"
    backend = "gloo"
    kit_language = "cpp"
    has_reference_forms = False

    arena_bytes = (32 << 20,)
    unsealed_arena_bytes = 32 << 20

    pace = Pace(batch_s=0.004, slower_s=0.020, calls=64, slots=256, pairs=8, gated_pairs=0, references=2)
    has_gate = False
    spins = False
    sees_foreign_work = False
    out_of_reach = 2e13, 4e12, 4e12

    outlives_kernels = False
    host_bytes = 0

    def lease_names(self, world: int) -> list[str]:
        """All cores, because worlds of CPU ranks share them."""
        return ["cores"]

    def settle_threads(self, ranks: Iterable[int]) -> None:
        """Gives ranks short slices, and gloo's polling threads the lowest priority in their world."""
        if self._sessions_are_groups:
            scheduling.settle_ranks(ranks)

    def settle_helper(self, pid: int) -> None:
        """Gives the session of this process the lowest weight."""
        scheduling.settle_session(pid)

    def share_of_cores(self, pid: int) -> scheduling.Share:
        """The share of a process if sessions are groups; else an empty share."""
        return scheduling.share_of_cores(pid) if self._sessions_are_groups else scheduling.Share()

    @cached_property
    def _sessions_are_groups(self) -> bool:
        return scheduling.sessions_are_groups()


KINDS: dict[str, DeviceKind] = {kind.name: kind for kind in (Cpu(), Cuda())}


def kind_of(name: str) -> DeviceKind:
    """The kind of this name. Raises KeyError for a name that is not in KINDS."""
    return KINDS[name]
