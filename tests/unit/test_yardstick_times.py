"""Times of reference forms are kept by setting, and shown beside the baseline with every verdict."""

import msgspec
import pytest

from arena.runs.run_state import RunState
from arena.workspace import yardstick_times
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Interval, Microseconds, Result, Seconds, Setting, Speedup
from sandbox.protocol.verdict import Verdict
from screens.kernel.panes.timing_table import TimingTable

SETTING = Setting(
    problem_dir=str(load_catalogue().find("1").folder),
    preset="production",
    sizes={"M": 8, "N": 8},
    world=4,
    device="cuda",
    dtype="bfloat16",
)
GRAPH = Microseconds(call=40.25, device=31.5)


def test_times_come_back_for_the_same_setting_alone(tmp_path):
    yardstick_times.keep(tmp_path, SETTING, "baseline-graph", GRAPH)
    yardstick_times.keep(tmp_path, SETTING, "baseline-windows", Microseconds(call=1.0, device=None))
    assert yardstick_times.times_for(tmp_path, SETTING)["baseline-graph"] == GRAPH
    assert len(yardstick_times.times_for(tmp_path, SETTING)) == 2
    for other in ({"world": 2}, {"sizes": {"M": 16, "N": 8}}, {"dtype": "float32"}, {"device": "cpu"}):
        assert yardstick_times.times_for(tmp_path, msgspec.structs.replace(SETTING, **other)) == {}


def test_a_damaged_file_is_as_none(tmp_path):
    yardstick_times.keep(tmp_path, SETTING, "baseline-graph", GRAPH)
    next(tmp_path.iterdir()).write_text("{")
    assert yardstick_times.times_for(tmp_path, SETTING) == {}


@pytest.mark.parametrize("width", [50, 90])
def test_the_timing_table_has_a_row_for_each(width):
    times = Microseconds(call=80.0, device=70.0)
    result = Result(
        verdict=Verdict.PASS,
        detail="",
        failure=None,
        paper_rule=None,
        error=None,
        speedup=Speedup(call=Interval(1.0, 0.9, 1.1), device=None),
        baseline_us=times,
        contender_us=times,
        roofline=None,
        seconds=Seconds(),
        jail="root",
        sealed=True,
        beside={"baseline-graph": GRAPH},
    )
    *_, row = TimingTable()._table(RunState(result=result), width).plain.splitlines()
    assert row.startswith("as CUDA graph")
    assert "40" in row
    assert ("31.5" in row) == (width > 62)
