"""The kinds of device for ranks, by the value of `--device`."""

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property

from sandbox.machine import placement, scheduling
from sandbox.machine.devices.kind import DeviceKind, Pace
from sandbox.machine.placement import RankGpu, cuda_environment, gpu_device_files, rank_gpus


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
        """Restricts CUDA to these GPUs, as 0, 1, 2..."""
        return cuda_environment(gpus)

    def device_files(self, gpus: Sequence[RankGpu]) -> tuple[str, ...]:
        """The files of these GPUs, and those that all GPUs share."""
        return gpu_device_files(gpus)

    def gpu_fault(self, gpus: Sequence[RankGpu], killed: Collection[int]) -> str:
        """The fault that NVML shows: a context that is left, or a GPU that needs a reset."""
        return placement.gpu_fault(gpus, killed)


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

    pace = Pace(batch_s=0.006, slower_s=0.030, calls=64, slots=256, pairs=8, gated_pairs=0, references=2)
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
        """Gives gloo's polling threads the lowest priority, and the worlds a lower one than the referee's."""
        if self._sessions_are_groups:
            ranks = list(ranks)
            scheduling.polling_gives_way(ranks)
            scheduling.worlds_give_way(ranks)

    def settle_helper(self, pid: int) -> None:
        """Gives the session of this process the lowest weight."""
        scheduling.worlds_give_way([pid], scheduling.LOWEST)

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
