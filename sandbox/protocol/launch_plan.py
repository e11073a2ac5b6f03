"""The launch plan of a world, as JSON for its launcher or in an order to the fork server."""

from enum import StrEnum

import msgspec


class Role(StrEnum):
    """What a world is for. The value is `WorldChanged.role`, which journals keep."""

    ORACLE = "baseline"
    REFERENCE = "reference"
    SPARE = "spare"
    CONTENDER = "contender"
    RIVAL = "rival"

    @property
    def words(self) -> str:
        """The role in sentences: "oracle", "reference"."""
        return self.name.lower()


def role_words(role: str) -> str:
    """The words of a role as an event or a journal has it; one that this version does not know stays as it is."""
    return next((known.words for known in Role if known == role), role)


MOST_ORDER_BYTES, MOST_DESCRIPTORS = 256 << 10, 253
"""Limits of an order to the fork server; SCM_MAX_FD limits the descriptors."""


class LaunchPlan(msgspec.Struct, frozen=True):
    """The ranks to fork, and the descriptors that each of them inherits."""

    ranks: int
    trusted: bool
    device_module: str
    """The module of the ranks' device: in sandbox.rank.devices."""
    folder: str
    """The world's folder, as its processes see it."""
    cores: list[list[int]]
    """Cores by rank."""
    sockets: list[int]
    """Control sockets by rank."""
    reports: list[int]
    """Report pages by rank, for texts of failures."""
    pipes: list[int]
    """Pipes for prints by rank."""
    status: int
    """A socket on which the launcher reports the end of each rank."""


class JoinedJail(msgspec.Struct, frozen=True):
    """A jail that bubblewrap builds around a process that does nothing, for a world to join."""

    builder: int
    """Process id of bubblewrap. The process inside is its last descendant."""
    ready: int
    """A pipe on which the process inside reports that the jail is complete."""


class ForkOrder(msgspec.Struct, frozen=True):
    """An order to fork one world. Its descriptors come with it: sockets, reports and pipes by rank, status, born and ready."""

    plan: LaunchPlan
    environment: dict[str, str]
    """The whole environment of the world."""
    group: str
    """Path of the control group that it enters; empty: none."""
    born: int
    """A socket for the id and the pidfd of the world's first process."""
    filter: bytes
    """The system-call filter, as BPF instructions; empty: none."""
    jail: JoinedJail | None
    """None: no jail."""

    def with_descriptors(self, fds: list[int]) -> "ForkOrder":
        """The order with this process's descriptors in place of the referee's."""
        ranks, replace = self.plan.ranks, msgspec.structs.replace
        sockets, reports, pipes = (fds[at : at + ranks] for at in range(0, 3 * ranks, ranks))
        status, born, *ready = fds[3 * ranks :]
        plan = replace(self.plan, sockets=sockets, reports=reports, pipes=pipes, status=status)
        return replace(self, plan=plan, born=born, jail=self.jail and replace(self.jail, ready=ready[0]))


encode = msgspec.json.Encoder().encode
decode_order = msgspec.json.Decoder(ForkOrder).decode
decode = msgspec.json.Decoder(LaunchPlan).decode
