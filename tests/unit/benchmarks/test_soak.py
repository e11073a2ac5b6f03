"""The leak table: which growth it calls a leak."""

from collections import Counter

from benchmarks.figure import Figure
from benchmarks.soak import EXACT, RESIDENT, figures


def table(runs: int = 40, **growth: float) -> dict[str, Figure]:
    """The table of runs; each named figure grows by its `growth` with every run."""
    names = [*EXACT, *RESIDENT]
    samples = [{name: 10 + growth.get(name, 0) * run for name in names} for run in range(runs)]
    return {figure.name: figure for figure in figures(samples, [1.0] * 9 + [2.0], Counter())}


def test_one_descriptor_in_ten_runs_is_a_leak():
    figure = table(**{"descriptors of the referee": 0.1})["more descriptors of the referee"]
    assert (figure.fault, figure.kept) == (True, False)
    assert "+10.000 per 100 runs" in figure.detail


def test_memory_may_grow_only_so_much():
    name = "resident memory of the referee"
    assert table(**{name: 0.1})[f"more {name}"].kept
    assert not table(**{name: 1.0})[f"more {name}"].kept


def test_an_unexpected_end_is_a_fault():
    sample = dict.fromkeys([*EXACT, *RESIDENT], 1.0)
    (figure,) = (f for f in figures([sample], [], Counter({"good: TIMEOUT": 1})) if not f.kept)
    assert figure.fault
    assert "good: TIMEOUT" in figure.detail
