"""What the ranks of a profiled world say about the kernel in them: its own word, parsed strictly, judged by nobody."""

import msgspec

from sandbox.protocol.events import Setting

MOST_SPANS = 12_000
"""Of one rank."""
MOST_BYTES = 2 << 20
"""Of one rank's report."""
NAME_CHARACTERS = 80


class ProfilePlan(msgspec.Struct, frozen=True):
    """The command line of a profiled world."""

    setting: Setting
    source: str
    """Empty: the baseline."""
    kernel_name: str
    device_module: str
    folder: str
    """The world's own, as seen from inside."""
    cores: list[list[int]]
    reports: list[int]
    """Descriptors that the ranks write their reports to."""
    seed: int
    warm: int
    """Calls before those that are looked at."""
    calls: int


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Something that took time on one rank."""

    kind: str
    """ "call": one call of solution; "wait": in a collective or a barrier; "op": an operation of torch."""
    name: str
    start_us: float
    """On this machine's clock, the same for all ranks."""
    us: float


class RankProfile(msgspec.Struct, frozen=True):
    """One rank's report."""

    rank: int
    spans: list[Span] = []
    failed: str = ""
    """What went wrong, in the kernel's own words; empty when nothing did."""
    failed_at: float = 0.0
    """Seconds on this machine's monotonic clock, the same for all ranks."""
    left_out: int = 0
    """Spans beyond MOST_SPANS; the call that they belong to is left out as a whole, unless it is the first."""


encode = msgspec.json.Encoder().encode
decode_plan = msgspec.json.Decoder(ProfilePlan).decode
decode_report = msgspec.json.Decoder(RankProfile).decode
