"""The result of a run that compares a kernel with the one that its player started from."""

import msgspec

from arena.records.code_hash import code_hash
from arena.records.header import RunHeader
from arena.words.headline import by_clock
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
    """Hash of the kernel's code (`arena.records.code_hash`)."""
    origin: str
    """SHA-256 of the kernel that it started from."""
    origin_name: str
    verdict: Verdict
    outcome: str
    """As `RunReport.outcome`, compared with the origin."""
    speedup: Interval | None
    clock: str

    @property
    def improved(self) -> bool:
        """Whether the kernel is correct, and faster than its origin by the whole 99 % interval."""
        return self.verdict is Verdict.PASS and self.outcome == "faster"


def comparison_of(header: RunHeader, result: Result) -> Comparison:
    """Returns the row of a finished run whose header names an origin. The origin took the baseline's place."""
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
