"""Plan and answer of a world whose rank 0 runs under Nsight Compute (ncu)."""

import msgspec

from sandbox.protocol.profile import ProfilePlan

MOST_TEXT = 4 << 20
"""Bytes of an answer."""
MOST_FILE = 128 << 20
"""Bytes of a report file."""
KERNEL, APPLICATION = "kernel", "application"
"""Ways to repeat a launch: ncu repeats it within the process, or starts the whole world again for every pass."""


class Replay(msgspec.Struct, frozen=True):
    """One way to repeat launches, which is tried."""

    mode: str
    limit_s: float
    launches: int
    """Most launches of the call that are profiled, from the first."""
    wait_ms: int
    """Milliseconds after which a wait in a kernel traps."""
    sections: list[str]


class NcuPlan(msgspec.Struct, frozen=True):
    """The command line of the world."""

    world: ProfilePlan
    """The plan of the world, without reports and controls."""
    ncu: str
    """The program ncu."""
    answer: int
    """Descriptor for the answer."""
    file: int
    """Descriptor for the report file."""
    replays: list[Replay]
    """The ways to try. The next one is tried if the one before gave no report."""


class NcuAnswer(msgspec.Struct, frozen=True):
    """The outcome. The kernel can change it."""

    mode: str = ""
    """The mode of the replay that gave the report; empty if none did."""
    seconds: float = 0.0
    """The duration of that replay."""
    csv: str = ""
    """The report as ncu writes it with `--page details --csv`."""
    refused: dict[str, str] = {}
    """Why the ways before it gave no report, by mode; one line each."""


encode = msgspec.json.Encoder().encode
decode_plan = msgspec.json.Decoder(NcuPlan).decode
decode_answer = msgspec.json.Decoder(NcuAnswer).decode
