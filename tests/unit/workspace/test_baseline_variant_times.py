"""Times of baseline variants are kept by setting, and shown beside the baseline with every verdict."""

import msgspec
import pytest
from msgspec.structs import replace
from stored_runs import result as run_result

from arena.machine import calibration
from arena.runs.run_state import RunState
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Interval, Microseconds, Setting, Timed
from sandbox.protocol.result import Batches, Samples
from screens.kernel.panes.timing_table import TimingTable
from screens.kernel.run_update import RunUpdate

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
    calibration.keep_times(tmp_path, SETTING, "baseline-graph", GRAPH)
    calibration.keep_times(tmp_path, SETTING, "baseline-windows", Microseconds(call=1.0, device=None))
    assert calibration.times_for(tmp_path, SETTING)["baseline-graph"] == GRAPH
    assert len(calibration.times_for(tmp_path, SETTING)) == 2
    for other in ({"world": 2}, {"sizes": {"M": 16, "N": 8}}, {"dtype": "float32"}, {"device": "cpu"}):
        assert calibration.times_for(tmp_path, msgspec.structs.replace(SETTING, **other)) == {}


@pytest.mark.parametrize("width", [50, 90])
def test_the_timing_table_has_a_row_for_each(width):
    times = Microseconds(call=80.0, device=70.0)
    result = run_result(
        call=Interval(1.0, 0.9, 1.1),
        baseline_us=times,
        contender_us=times,
        jail="root",
        beside={"baseline-graph": GRAPH},
    )
    spread = replace(result, samples=Samples(call=[Batches(1, us, us, True) for us in (70.0, 80.0, 95.0)]))
    one = Interval(1.0, 1.0, 1.0)
    last = [Timed(run_id="", round=1, rounds=1, calls=1, baseline_us=7.0, contender_us=7.0, call=one)]
    _, baseline, *_ = TimingTable()._table(RunState(result=spread, samples=last), width).plain.splitlines()
    assert baseline.split()[1:4] == ["80.0", "70.0", "95.0"]  # of all pairs, not only each round's last one
    *_, row = TimingTable()._table(RunState(setting=SETTING, result=result), width).plain.splitlines()
    assert row.startswith("as CUDA graph")
    assert "40" in row
    assert ("31.5" in row) == (width > 62)


@pytest.mark.parametrize(("width", "most_rows"), [(44, 7), (74, 6)])  # of the pane at 100 and at 160 columns
def test_advice_keeps_room_beside_a_long_sentence(width, most_rows):
    told = "no claim: other programs use the cores (the baseline's ranks waited for one 100 % of the time, the kernel's 100 %)"
    noisy = replace(run_result(call=Interval(1.0, 0.1, 7.0)), outcome="too noisy", told=told)
    (table := TimingTable()).most_rows = most_rows
    advice = "measure longer (ctrl+l), fewer ranks than cores, a quieter machine"
    rows = table._content(RunUpdate(RunState(result=noisy), False, [], advice), width).plain.splitlines()
    assert len(rows) == most_rows
    assert advice in " ".join(rows[-2:])
