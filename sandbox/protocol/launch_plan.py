"""The plan of a world: on the command line of its launcher, or in an order to the fork server. JSON."""

import msgspec

MOST_ORDER_BYTES, MOST_DESCRIPTORS = 256 << 10, 253
"""Of an order to the fork server; the kernel passes no more descriptors at once (SCM_MAX_FD)."""


class LaunchPlan(msgspec.Struct, frozen=True):
    """The ranks to fork, and the descriptors that each of them inherits."""

    ranks: int
    trusted: bool
    device_module: str
    """The ranks' side of their kind of device: sandbox.rank.devices."""
    folder: str
    """The world's folder as its processes see it."""
    cores: list[list[int]]
    """By rank: the cores that it is pinned to."""
    sockets: list[int]
    """By rank: its end of the control socket."""
    reports: list[int]
    """By rank: the page for texts of failures."""
    pipes: list[int]
    """By rank: where its prints go."""
    status: int
    """A socket on which the launcher says which rank ended, and how."""


class JoinedJail(msgspec.Struct, frozen=True):
    """A jail that bubblewrap builds around a process that does nothing, for a world to join."""

    builder: int
    """Process id of bubblewrap; the process inside is the last one below it."""
    ready: int
    """A pipe at which the process inside says that the walls stand."""
    filter: bytes
    """The system-call filter, as BPF instructions."""


class ForkOrder(msgspec.Struct, frozen=True):
    """One world for the fork server. Descriptors are places in the list that comes with the order."""

    plan: LaunchPlan
    environment: dict[str, str]
    """All of it."""
    folder: str
    """Where the world starts, as its processes see it."""
    group: str
    """The folder of the control group that it enters; empty: none."""
    born: int
    """A socket for the process id of the world's first process, and a handle of it (pidfd_open(2))."""
    jail: JoinedJail | None
    """None: no jail."""

    def with_descriptors(self, fds: list[int]) -> "ForkOrder":
        """The same with the numbers that the descriptors have in this process."""
        plan = self.plan
        replaced = msgspec.structs.replace(
            plan,
            sockets=[fds[at] for at in plan.sockets],
            reports=[fds[at] for at in plan.reports],
            pipes=[fds[at] for at in plan.pipes],
            status=fds[plan.status],
        )
        joined = self.jail and msgspec.structs.replace(self.jail, ready=fds[self.jail.ready])
        return msgspec.structs.replace(self, plan=replaced, born=fds[self.born], jail=joined)


encode = msgspec.json.Encoder().encode
decode_order = msgspec.json.Decoder(ForkOrder).decode
decode = msgspec.json.Decoder(LaunchPlan).decode
