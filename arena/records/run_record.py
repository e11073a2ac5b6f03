"""One finished run as a row of the index of results."""

from typing import Annotated

import msgspec

from arena.records.bound import gap_closed
from arena.records.code_hash import code_hash
from arena.records.header import RunHeader
from arena.records.report import holds_here
from arena.records.voids import Void
from arena.words.headline import by_clock
from sandbox.machine.backends import label_in
from sandbox.protocol.events import Result
from sandbox.protocol.verdict import Verdict
from sandbox.timing.interval import detectable_percent


class Entry(msgspec.Struct, frozen=True):
    """One finished run."""

    run_id: str
    created: float
    problem_id: int
    slug: str
    player: str
    kernel_path: str
    kernel_name: str
    sha256: str
    device: str
    world: int
    dtype: str
    preset: str
    preset_sizes: bool
    verdict: Verdict
    outcome: str
    """ "faster", "slower", "even", "too noisy", or empty when nothing was timed."""
    speedup: float | None
    """Median by the headline's clock; `low` and `high` are the ends of its interval."""
    low: float | None
    high: float | None
    percent: float | None
    """Percent of the roofline's bound."""
    clock: str = ""
    """The clock of the headline: "call" or "device"; empty when nothing was timed."""
    call_sees: float | None = None
    """Smallest detectable difference of end-to-end time, in percent; None if not known."""
    device_sees: float | None = None
    code: str = ""
    """Hash of the code (`arena.records.code_hash`)."""
    rounds: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Number of timed rounds."""
    machine: str = ""
    """The machine's fingerprint (`arena.machine.fingerprint`)."""
    gap_closed: float | None = None
    """Share of the gap between the baseline and the roofline's bound (`arena.records.bound`)."""
    backend: str = ""
    """The label of the kernel's backend (`sandbox.machine.backends`); empty: no backend, or the kernel did not pass."""
    other_than: str = ""
    """For a run in a random setting at other sizes: the id of the run that it belongs to; else empty."""
    voided: Void | None = None
    """Why the run is in no ranking; None: it counts. Read from the journal of voids, not a column of the index."""

    @property
    def is_ranked(self) -> bool:
        """Whether the run has its preset's own sizes and belongs to no other run (`other_than`)."""
        return self.preset_sizes and not self.other_than

    @property
    def holds(self) -> bool | None:
        """As `OtherSize.holds`."""
        return holds_here(self.verdict, self.outcome)


def entry_of(header: RunHeader, result: Result) -> Entry:
    """Returns the row of a finished run."""
    speed = by_clock(result.speedup, result.clock)
    call, device = (_sees(result, clock) for clock in ("call", "device"))
    return Entry(
        run_id=header.run_id,
        created=header.created,
        problem_id=header.problem_id,
        slug=header.slug,
        player=header.player,
        kernel_path=header.kernel_path,
        kernel_name=header.kernel_name,
        sha256=header.sha256,
        device=header.setting.device,
        world=header.setting.world,
        dtype=header.setting.dtype,
        preset=header.setting.preset,
        preset_sizes=header.preset_sizes,
        verdict=result.verdict,
        outcome=result.outcome,
        speedup=speed.median if speed else None,
        low=speed.low if speed else None,
        high=speed.high if speed else None,
        percent=result.roofline.percent if result.roofline else None,
        clock=result.clock,
        call_sees=call,
        device_sees=device,
        code=code_hash(header.source, header.files),
        rounds=result.rounds,
        machine=header.machine,
        gap_closed=gap_closed(result),
        backend=label_in(result.labels),
        other_than=header.other_than,
    )


def _sees(result: Result, clock: str) -> float | None:
    interval = by_clock(result.speedup, clock)
    return detectable_percent(interval) if interval is not None else None
