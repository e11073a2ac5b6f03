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
    """One way that is tried."""

    mode: str
    limit_s: float
    launches: int
    """At most so many launches of the call are profiled, from the first."""
    wait_ms: int
    """After so long a wait in a kernel traps."""
    sections: list[str]


class NcuPlan(msgspec.Struct, frozen=True):
    """The command line of the world."""

    world: ProfilePlan
    """Without reports and controls."""
    ncu: str
    """The program."""
    answer: int
    """Descriptor for the answer."""
    file: int
    """Descriptor for the report file."""
    replays: list[Replay]
    """The next one is tried if the one before gave no report."""


class NcuAnswer(msgspec.Struct, frozen=True):
    """What came of it. The kernel can change it."""

    mode: str = ""
    """Of the replay that gave the report; empty if none did."""
    seconds: float = 0.0
    """That it took."""
    csv: str = ""
    """The report as ncu writes it with `--page details --csv`."""
    refused: dict[str, str] = {}
    """Why the ways before it gave no report, by mode; one line each."""


encode = msgspec.json.Encoder().encode
decode_plan = msgspec.json.Decoder(NcuPlan).decode
decode_answer = msgspec.json.Decoder(NcuAnswer).decode
