"""Measurements of the same code count as one."""

from arena.records.ranking import Measurement, ranked
from sandbox.protocol.events import Interval


def test_a_kernel_is_ranked_by_the_low_end_of_all_its_measurements() -> None:
    found = {
        "lucky": Measurement("a", Interval(3.06, 2.9, 3.2), "call"),
        "usual": Measurement("a", Interval(1.25, 1.2, 1.3), "call"),
        "again": Measurement("a", Interval(1.2, 1.13, 1.27), "call"),
        "by device": Measurement("a", Interval(9.0, 8.9, 9.1), "device"),
        "other": Measurement("b", Interval(1.3, 1.25, 1.35), "call"),
        "wide": Measurement("c", Interval(5.0, 1.0, 25.0), "call"),
    }
    kernels = ranked(["untimed", *found], found.get)
    assert [kernel.item for kernel in kernels] == ["other", "usual", "wide"]
    assert kernels[1].speedup == Interval(1.25, 1.2, 1.3)
    assert kernels[1].items == ("lucky", "usual", "again", "by device")


def test_a_useless_measurement_never_outweighs_a_good_one() -> None:
    good, useless = Interval(7.02, 5.78, 8.54), Interval(3.85, 2.89, 3289.0)
    for order in ((good, useless), (useless, good), (useless, useless, good, useless)):
        (kernel,) = ranked(order, lambda speedup: Measurement("a", speedup, "call"))
        assert (kernel.item, kernel.speedup) == (good, good)


def test_a_longer_measurement_replaces_a_shorter_one() -> None:
    short, longer = Interval(1.4, 1.2, 1.6), Interval(1.33, 1.31, 1.35)
    (kernel,) = ranked([short, longer], lambda speedup: Measurement("a", speedup, "call"))
    assert (kernel.item, kernel.speedup) == (longer, longer)
