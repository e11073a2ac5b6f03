"""What was run: the first line of a run's journal. The events follow, and a replay needs nothing else."""

import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from arena.records.json_lines import decoder, read_first, read_later
from sandbox.protocol.events import AnyEvent, Contender, Setting

VERSION = 1


def new_id(at: float | None = None) -> str:
    """An id for a run, a duel or a trace that begins now, or at `at` (seconds since the epoch). Ids sort by time."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(at))}-{secrets.token_hex(4)}"


class RunHeader(Contender, frozen=True, kw_only=True, tag_field="type", tag="run"):
    """First line of a journal: what was run."""

    run_id: str
    created: float
    """Seconds since the epoch."""
    problem_id: int
    slug: str
    category: str
    player: str
    kernel_path: str
    """Empty when the kernel was not read from a file."""
    sha256: str
    setting: Setting
    preset_sizes: bool = True
    """False when a size of the preset was overridden."""
    versus: str = ""
    """Name of the kernel in the baseline's place; empty: the baseline itself."""
    origin: str = ""
    """SHA-256 of the kernel that the player started from; empty: none, or not known."""
    other_than: str = ""
    """For a run in a random setting at other sizes: the id of the run that it belongs to; else empty."""
    correctness_only: bool = False
    """Whether nothing was to be timed: a `compile` call of a model, or a profile."""
    machine: str = ""
    """Fingerprint of the machine that ran it."""
    version: int = VERSION


decode_header: Callable[[bytes], RunHeader] = decoder(RunHeader)
decode_event: Callable[[bytes], AnyEvent] = decoder(AnyEvent)
read_header: Callable[[Path], RunHeader] = partial(read_first, decode=decode_header)
read_events: Callable[[Path], Iterator[AnyEvent]] = partial(read_later, decode=decode_event)
"""`read_first` and `read_later` of a run's journal."""
