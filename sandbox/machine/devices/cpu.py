"""CPU ranks: gloo and memory files."""

from collections.abc import Iterable
from functools import cached_property

from sandbox.machine import scheduling
from sandbox.machine.devices.kind import DeviceKind, Throughput
from sandbox.machine.devices.pace import Pace


class Cpu(DeviceKind):
    """The kind `cpu`."""

    name = "cpu"
    rank_module = "sandbox.rank.devices.cpu"
    default_preset = "tiny"
    on_gpus = False
    ranks_name = "CPU ranks"
    backend = "gloo"
    kit_language = "cpp"
    has_reference_forms = False

    arena_bytes = 32 << 20
    unsealed_arena_bytes = 32 << 20

    pace = Pace(batch_s=0.006, long_s=0.006, slower_s=0.030, calls=64, slots=256, pairs=4, gated_pairs=0, references=2)
    has_gate = False
    sees_foreign_work = False
    out_of_reach = Throughput(flops=2e13, local=4e12, link=4e12)

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
