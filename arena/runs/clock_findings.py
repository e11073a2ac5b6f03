"""The resolution of this machine's clocks, from the results of its last runs."""

from statistics import median

import msgspec

from arena.errors import ArenaError, refusal
from arena.machine.finding import MachineFinding
from arena.paths import Paths
from arena.runs.headline import WHERE
from sandbox.machine.devices import kind_of
from sandbox.timing.conclusion import percent
from sandbox.timing.interval import NOISY_PERCENT

LAST = 40
"""Runs that are looked at, on any device."""


class ClockSight(msgspec.Struct, frozen=True):
    """One clock on one kind of device."""

    device: str
    """The name of a kind of device."""
    clock: str
    """ "call" or "device"."""
    sees: float
    """Percent: half of the runs detect a difference as small as this."""
    runs: int


def clocks_seen(paths: Paths) -> list[ClockSight]:
    """Every clock that the last runs were timed by; empty before the first run. Milliseconds; creates nothing.

    Raises:
        ArenaError: the index of results cannot be read.
    """
    from arena.runs.store import stored  # sqlite3 is not free

    try:
        entries = stored(paths, lambda store: store.last_timed(LAST)) or []
    except PermissionError as error:
        raise refusal(error) or error from None
    found: dict[tuple[str, str], list[float]] = {}
    for entry in entries:
        for clock, sees in (("call", entry.call_sees), ("device", entry.device_sees)):
            if sees is not None:
                found.setdefault((entry.device, clock), []).append(sees)
    return [ClockSight(*name, median(sees), len(sees)) for name, sees in sorted(found.items())]


def clock_finding(paths: Paths) -> MachineFinding:
    """The same as a finding of the doctor."""
    try:
        found = clocks_seen(paths)
    except ArenaError as error:
        return MachineFinding("clocks", "limited", error.message, error.advice)
    if not found:
        return MachineFinding("clocks", "limited", "not known before the first run", "run any kernel")
    words = "; ".join(_words([sight for sight in found if sight.device == device]) for device in _devices(found))
    noisy = [
        device
        for device in _devices(found)
        if min(sight.sees for sight in found if sight.device == device) > NOISY_PERCENT
    ]
    if noisy:
        return MachineFinding(
            "clocks", "limited", words, "a quieter machine, fewer ranks than cores, or `run --budget 5` tells more"
        )
    return MachineFinding("clocks", "ok", words)


def _devices(found: list[ClockSight]) -> list[str]:
    return list(dict.fromkeys(sight.device for sight in found))


def _words(sights: list[ClockSight]) -> str:
    """ "CPU ranks: smallest detectable difference 12 % end-to-end (median of 14 runs)"."""
    clocks = ", ".join(
        f"{percent(sight.sees)} {WHERE[sight.clock]} (median of {sight.runs} run{'s' * (sight.runs > 1)})"
        for sight in sights
    )
    return f"{kind_of(sights[0].device).ranks_name}: smallest detectable difference {clocks}"
