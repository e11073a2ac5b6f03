"""The plan of a world, on the command line of its launcher: one JSON object."""

import msgspec


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


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(LaunchPlan).decode
