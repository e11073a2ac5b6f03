"""Measurements of the same code count as one."""

from arena.records.ranking import Measurement, ranked
from sandbox.protocol.events import Interval


def test_a_kernel_is_ranked_by_the_low_end_of_all_its_measurements() -> None:
    found = {
        "lucky": Measurement("a", Interval(3.06, 2.9, 3.2), "call", 40),
        "usual": Measurement("a", Interval(1.25, 1.2, 1.3), "call", 40),
        "again": Measurement("a", Interval(1.2, 1.1, 1.3), "call", 40),
        "by device": Measurement("a", Interval(9.0, 8.0, 10.0), "device", 20),
        "other": Measurement("b", Interval(1.3, 1.25, 1.35), "call", 40),
        "wide": Measurement("c", Interval(5.0, 1.0, 25.0), "call", 40),
    }
    kernels = ranked(["untimed", *found], found.get)
    assert [kernel.item for kernel in kernels] == ["other", "lucky", "wide"]
    assert kernels[1].speedup == Interval(1.25, 1.2, 1.3)
    assert kernels[1].items == ("lucky", "usual", "again", "by device")
