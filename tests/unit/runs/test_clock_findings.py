"""The doctor on this machine's clocks: it reads the results of the last runs and starts none."""

import math
from unittest.mock import Mock

import msgspec
import pytest
from stored_runs import record

from arena.paths import Paths
from arena.records.index import Store
from arena.records.run_record import RunRecord
from arena.runs.clock_findings import clock_finding, clock_resolutions
from sandbox.protocol.events import Interval, Speedup
from sandbox.timing.interval import HALF_WIDTHS


def entry(number: int, device: str, call: float | None, on_device: float | None) -> RunRecord:
    def interval(detectable: float | None) -> Interval | None:
        if detectable is None:
            return None
        half = math.log1p(detectable / 100) / HALF_WIDTHS
        return Interval(1.0, math.exp(-half), math.exp(half))

    speedup = Speedup(call=interval(call), device=interval(on_device)) if call is not None else None
    return record(f"r{number}", created=float(number), device=device, speedup=speedup, clock="call")


def keep(paths: Paths, *entries: RunRecord) -> None:
    store = Store(paths.database, paths.runs)
    for each in entries:
        store.record(each)
    store.close()


def test_before_first_run_advice_is_to_run_kernel(paths: Paths) -> None:
    found = clock_finding(paths)
    assert (found.name, found.state, clock_resolutions(paths)) == ("clocks", "limited", [])
    assert found.advice == "end other programs, then run any kernel"
    assert not paths.database.exists()


def test_index_that_is_denied_is_named(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = PermissionError(13, "Permission denied", "/of/another/user")
    monkeypatch.setattr("arena.records.index.stored", Mock(side_effect=denied))
    found = clock_finding(paths)
    assert (found.name, found.state, found.found) == ("clocks", "limited", "/of/another/user: Permission denied")


def test_median_of_last_runs_by_clock_and_device(paths: Paths) -> None:
    keep(
        paths,
        entry(1, "cpu", 10.0, None),
        entry(2, "cpu", 30.0, None),
        entry(3, "cpu", 12.0, None),
        entry(4, "cuda", 80.0, 2.0),
        entry(5, "cpu", None, None),
    )
    found = clock_finding(paths)
    assert found.state == "ok"
    assert found.found == (
        "CPU ranks: smallest detectable difference 12 % end-to-end (median of 3 runs); "
        "GPUs: smallest detectable difference 80 % end-to-end (median of 1 run), 2 % device time (median of 1 run)"
    )
    assert [
        (each.device, each.clock, round(each.detectable_percent, 6), each.runs) for each in clock_resolutions(paths)
    ] == [("cpu", "call", 12.0, 3), ("cuda", "call", 80.0, 1), ("cuda", "device", 2.0, 1)]
    assert msgspec.to_builtins(clock_resolutions(paths)[0]) == {
        "device": "cpu", "clock": "call", "sees": pytest.approx(12.0), "runs": 3,
    }  # fmt: skip


def test_clocks_that_can_tell_nothing_get_advice(paths: Paths) -> None:
    keep(paths, entry(1, "cpu", 90.0, None), entry(2, "cuda", 80.0, 2.0))
    found = clock_finding(paths)
    assert (found.name, found.state) == ("clocks", "limited")
    assert "--seconds" in found.advice
