"""The resolution of this machine's clocks, from the results of its last runs."""

from itertools import groupby
from operator import attrgetter
from statistics import median

import msgspec

from arena.errors import ArenaError, refusal
from arena.machine.finding import MachineFinding, limited, ok
from arena.paths import Paths
from arena.words.headline import WHERE
from sandbox.machine.devices import kind_of
from sandbox.timing.conclusion import percent
from sandbox.timing.interval import NOISY_PERCENT

LAST = 40
"""Number of the newest runs that are read, on any device."""


class ClockResolution(msgspec.Struct, rename={"detectable_percent": "sees"}, frozen=True):
    """One clock on one kind of device."""

    device: str
    """The name of a kind of device."""
    clock: str
    """ "call" or "device"."""
    detectable_percent: float
    """Median of the runs' smallest detectable differences, in percent."""
    runs: int


def clock_resolutions(paths: Paths) -> list[ClockResolution]:
    """Returns every clock that timed the last runs; empty before the first run. Takes milliseconds; creates no file.

    Raises:
        ArenaError: the index of results cannot be read.
    """
    from arena.records.index import stored  # importing sqlite3 takes time

    try:
        entries = stored(paths, lambda store: store.last_timed(LAST)) or []
    except PermissionError as error:
        raise refusal(error) or error from None
    found: dict[tuple[str, str], list[float]] = {}
    for entry in entries:
        for clock in WHERE:
            if (detectable := entry.detectable(clock)) is not None:
                found.setdefault((entry.device, clock), []).append(detectable)
    return [ClockResolution(*name, median(percents), len(percents)) for name, percents in sorted(found.items())]


def clock_finding(paths: Paths) -> MachineFinding:
    """Returns the resolution of the clocks as a finding of `pkb-arena doctor`."""
    try:
        found = clock_resolutions(paths)
    except ArenaError as error:
        return limited("clocks", error.message, error.advice)
    if not found:
        return limited("clocks", "not known: no run so far was quiet enough", "end other programs, then run any kernel")
    devices = [list(clocks) for _, clocks in groupby(found, attrgetter("device"))]
    words = "; ".join(map(_words, devices))
    if any(min(each.detectable_percent for each in clocks) > NOISY_PERCENT for clocks in devices):
        advice = "to reduce noise: a quieter machine, fewer ranks than cores, or `run --seconds 10`"
        return limited("clocks", words, advice)
    return ok("clocks", words)


def _words(resolutions: list[ClockResolution]) -> str:
    """ "CPU ranks: smallest detectable difference 12 % end-to-end (median of 14 runs)"."""
    clocks = ", ".join(
        f"{percent(each.detectable_percent)} {WHERE[each.clock]} (median of {each.runs} run{'s' * (each.runs > 1)})"
        for each in resolutions
    )
    return f"{kind_of(resolutions[0].device).ranks_name}: smallest detectable difference {clocks}"
