"""The phase line when not all phases fit."""

from run_states import fold

from sandbox.protocol.events import Finished, Judged, PhaseEnded, PhaseStarted, RunStarted, Setting
from sandbox.protocol.result import Result, Seconds
from sandbox.protocol.verdict import Verdict
from screens.kernel.phase_line import fitting, phase_parts

PHASES = [("✓ load 0.08", ""), ("· compile", ""), ("✓ check 0.19", ""), ("▸ time 1.2/31 s", ""), ("esc cancels", "")]


def texts(width: int) -> list[str]:
    return [text for text, _ in fitting(PHASES, width)]


def test_all_of_them_where_there_is_room():
    assert texts(80) == [text for text, _ in PHASES]


def test_what_never_came_goes_first_then_what_is_longest_done():
    assert texts(64) == ["✓ load 0.08", "✓ check 0.19", "▸ time 1.2/31 s", "esc cancels"]
    assert texts(50) == ["✓ check 0.19", "▸ time 1.2/31 s", "esc cancels"]
    assert texts(35) == ["▸ time 1.2/31 s", "esc cancels"]


def test_a_wait_keeps_its_seconds_and_the_key_before_who_is_waited_for():
    waits = [
        ("✓ load 0.15", ""), ("▸ Waiting: another run is timing 29 s", ""),
        ("(gemm_allreduce of root, process 6191, since 10:30:40)", ""), ("esc cancels", ""),
    ]  # fmt: skip
    assert fitting(waits, 160) == waits
    assert fitting(waits, 110) == waits[1:]
    assert fitting(waits, 98) == [waits[0], waits[1], waits[3]]
    assert fitting(waits, 58) == [waits[1], waits[3]]


def test_what_is_going_on_stays_however_narrow_it_is():
    assert texts(5) == ["▸ time 1.2/31 s", "esc cancels"]


def test_a_phase_whose_compiling_goes_on_has_not_failed():
    """Kernels for GPUs compile in their first call, which is part of the correctness check."""
    setting = Setting(problem_dir="p", preset="tiny", sizes={}, world=2, device="cuda", dtype="bfloat16")
    state = fold(
        [
            RunStarted(run_id="r", setting=setting, kernel_name="kernel.py", sha256="", at=1.0),
            PhaseStarted(run_id="r", phase="load", limit_s=5.0, at=1.0),
            PhaseEnded(run_id="r", phase="load", seconds=0.5, at=1.5),
            PhaseStarted(run_id="r", phase="check", limit_s=5.0, at=1.5),
            PhaseStarted(run_id="r", phase="compile", limit_s=60.0, at=1.6),
        ]
    )
    words = [text for text, _ in phase_parts(state, 2.0)]
    assert words == ["✓ load 0.50", "▸ compile 0.4 s", "▸ check", "· time"]
    state.apply(PhaseEnded(run_id="r", phase="compile", seconds=0.9, at=2.5))
    words = [text for text, _ in phase_parts(state, 2.6)]
    assert words == ["✓ load 0.50", "✓ compile 0.90", "▸ check 1.1 s", "· time"]


def test_timing_that_a_person_ended_has_not_failed():
    setting = Setting(problem_dir="p", preset="tiny", sizes={}, world=2, device="cpu", dtype="bfloat16")
    known = dict.fromkeys(Result.__struct_fields__[:9], None) | {"verdict": Verdict.PASS, "seconds": Seconds(time=4.0)}
    result = Result(**known, jail="", sealed=True)
    state = fold(
        [
            RunStarted(run_id="r", setting=setting, kernel_name="kernel.py", sha256="", at=1.0),
            PhaseStarted(run_id="r", phase="time", limit_s=5.0, at=1.0),
            Judged(run_id="r", sha256="", result=result, at=3.0),
        ]
    )
    assert phase_parts(state, 9.0, most_s=2.5)[-1][0] == "▸ time 8.0 s"  # measuring goes on, so no limit is told
    state.apply(Finished(run_id="r", sha256="", result=result, at=9.0))
    assert phase_parts(state, 9.0)[-1][0] == "✓ time 4.00"
