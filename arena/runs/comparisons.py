"""A kernel against the one that its player started from: the result of one run with both."""

import msgspec

from arena.runs.code_hash import code_hash
from arena.runs.headline import by_clock
from arena.runs.journal import RunHeader
from sandbox.protocol.events import Interval, Result
from sandbox.protocol.verdict import Verdict


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the index. Fields are added, never renamed."""

    run_id: str
    player: str
    problem_id: int
    preset: str
    preset_sizes: bool
    device: str
    world: int
    machine: str
    code: str
    """Names the kernel's code without comments (`arena.runs.ranking`)."""
    origin: str
    """SHA-256 of the kernel that it started from."""
    origin_name: str
    verdict: Verdict
    outcome: str
    """As `RunReport.outcome`, over the origin."""
    speedup: Interval | None
    clock: str

    @property
    def improved(self) -> bool:
        """The kernel is right, and faster than its origin by the whole 99 % interval."""
        return self.verdict is Verdict.PASS and self.outcome == "faster"


def comparison_of(header: RunHeader, result: Result) -> Comparison:
    """Of a finished run whose header names an origin, which took the baseline's place."""
    setting = header.setting
    return Comparison(
        run_id=header.run_id,
        player=header.player,
        problem_id=header.problem_id,
        preset=setting.preset,
        preset_sizes=header.preset_sizes,
        device=setting.device,
        world=setting.world,
        machine=header.machine,
        code=code_hash(header.source, header.files),
        origin=header.origin,
        origin_name=header.versus,
        verdict=result.verdict,
        outcome=result.outcome,
        speedup=by_clock(result.speedup, result.clock),
        clock=result.clock,
    )
