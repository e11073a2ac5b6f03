"""Measurements of the same code count as one; its hash ignores blank lines and comment lines only."""

import pytest

from arena.records.code_hash import code_hash
from arena.records.ranking import Measurement, ranked
from sandbox.protocol.events import Interval


def test_kernel_ranks_by_low_end_of_measurements() -> None:
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


KERNEL = "def solution(x):\n    if x:\n        return x\n    return 0\n"
CUDA = 'SOURCE = """\n#define TILE 4\n"""\n'


@pytest.mark.parametrize(
    "same",
    [
        "# a comment\n" + KERNEL,
        KERNEL.replace("\n", "\n\n"),
        KERNEL.replace("if x:", "if x:\n  # why"),
        KERNEL.rstrip("\n"),
        KERNEL.replace("\n", "  \n"),
        KERNEL.replace("\n", "\r\n"),
        KERNEL.replace("\n", "\r"),
        "\ufeff" + KERNEL,
    ],
)
def test_blank_and_comment_lines_are_no_code(same: str) -> None:
    assert code_hash(same) == code_hash(KERNEL)


@pytest.mark.parametrize(
    "other",
    [
        KERNEL.replace("return 0", "return 1"),
        KERNEL.replace("    return 0", "        return 0"),
        KERNEL.replace("return 0", "return '# 0'"),
        '"text"\n' + KERNEL,
        "def broken(:",
        "def solution(x:\n",
        "",
        "\ud800",
        "f'{" * 9000,
        "(" * 9000,
    ],
)
def test_other_code_has_another_hash(other: str) -> None:
    assert code_hash(other) != code_hash(KERNEL)


def test_lines_of_a_string_are_code() -> None:
    assert code_hash(CUDA) != code_hash(CUDA.replace("4", "8"))
    assert code_hash(f"# tile\n{CUDA}") == code_hash(CUDA)


def test_only_python_files_lose_comments() -> None:
    assert code_hash(KERNEL, {"a.py": b"x = 1\n# why\n"}) == code_hash(KERNEL, {"a.py": b"x = 1\n"})
    assert code_hash(KERNEL, {"a.cu": b"#define X 1\n"}) != code_hash(KERNEL, {"a.cu": b""})
