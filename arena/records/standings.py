"""Best results: of a player in a problem, and of all kernels in one setting."""

from collections.abc import Iterable

import msgspec

from arena.records.ranking import Measurement, Ranked, ranked
from arena.records.report import holds
from arena.records.run_record import Entry
from sandbox.protocol.events import Interval
from sandbox.protocol.verdict import Verdict


class Standing(msgspec.Struct, frozen=True):
    """A player's best and last results in one problem. Voided runs count in `runs` alone."""

    problem_id: int
    runs: int
    solved: bool
    """At least one PASS."""
    best: Entry | None
    """The correct kernel with the highest speedup at a preset's own sizes, all its measurements pooled."""
    last: Entry
    """The last run that is not voided; if all are voided, the last of all."""
    holds: str = ""
    """If `best` is faster: it is also faster at "all", "some" or "none" of the other sizes; empty: not known."""

    @property
    def faster(self) -> bool:
        """Whether the interval of `best` lies above 1."""
        return self.best is not None and self.best.outcome == "faster"


def fastest(entries: Iterable[Entry]) -> list[Entry]:
    """Returns the correct kernels at presets' own sizes, fastest first, each with the pooled figures of its runs.

    Leaves out voided runs, and kernels whose times were too noisy.
    """
    kernels = [_with_pooled(kernel) for kernel in ranked(entries, _measurement)]
    return [entry for entry in kernels if entry.outcome != "too noisy"]


def _measurement(entry: Entry) -> Measurement | None:
    if entry.verdict is not Verdict.PASS or not entry.is_ranked or entry.voided is not None:
        return None
    if entry.speedup is None or entry.low is None or entry.high is None:
        return None
    key = (entry.code, entry.problem_id, entry.device, entry.world, entry.dtype, entry.preset, entry.machine)
    return Measurement(key, Interval(entry.speedup, entry.low, entry.high), entry.clock, entry.rounds)


def _with_pooled(kernel: Ranked[Entry]) -> Entry:
    if len(kernel.items) == 1:
        return kernel.item
    median, low, high = msgspec.structs.astuple(kernel.speedup)
    return msgspec.structs.replace(
        kernel.item, speedup=median, low=low, high=high, outcome=kernel.outcome, clock=kernel.clock
    )


def standing_of(problem_id: int, entries: list[Entry]) -> Standing:
    """Returns a player's standing in a problem. entries: all runs of the player in it, oldest first."""
    counted = [entry for entry in entries if entry.voided is None]
    solved = any(entry.verdict is Verdict.PASS and not entry.other_than for entry in counted)
    best = next(iter(fastest(counted)), None)
    held = _holds(best, counted) if best is not None and best.outcome == "faster" else ""
    return Standing(problem_id, len(entries), solved, best, (counted or entries)[-1], held)


def _holds(best: Entry, entries: list[Entry]) -> str:
    """Returns `holds` for a kernel, from the runs at other sizes that belong to its own runs in the same setting."""
    own = {each.run_id for each in entries if _same(each, best)}
    return holds([each for each in entries if each.other_than in own])


def _same(one: Entry, other: Entry) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("code", "preset", "preset_sizes", "device", "world", "dtype", "machine", "other_than")
    )
