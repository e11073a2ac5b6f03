"""Rows of two kernels, side by side."""

from screens.kernel.source.side_by_side import DiffRow, rows_of


def test_changed_lines_stand_opposite_each_other() -> None:
    rows = rows_of({"kernel.py": "a\nb\nc\n"}, {"kernel.py": "a\nB\nmore\nc\n"})
    assert rows == [
        DiffRow(1, "a", 1, "a"),
        DiffRow(2, "b", 2, "B"),
        DiffRow(0, "", 3, "more"),
        DiffRow(3, "c", 4, "c"),
    ]
    assert [row.same for row in rows] == [True, False, False, True]


def test_removed_lines_have_nothing_opposite() -> None:
    rows = rows_of({"kernel.py": "a\nb\n"}, {"kernel.py": "b\n"})
    assert rows == [DiffRow(1, "a", 0, ""), DiffRow(2, "b", 1, "b")]
    assert rows_of({"kernel.py": ""}, {"kernel.py": ""}) == []


def test_kernels_are_compared_file_by_file() -> None:
    old = {"kernel.py": "a\nb", "gone.cu": "b", "ops.h": "x"}
    new = {"kernel.py": "a", "ops.h": "x", "new.cu": "b"}
    rows = rows_of(old, new)
    assert rows == [
        (0, "kernel.py", 0, "kernel.py"),
        (1, "a", 1, "a"),
        (2, "b", 0, ""),
        (0, "gone.cu", 0, ""),
        (1, "b", 0, ""),
        (0, "ops.h is the same", 0, "ops.h is the same"),
        (0, "", 0, "new.cu"),
        (0, "", 1, "b"),
    ]
    assert [row.same for row in rows] == [True, True, False, False, False, True, False, False]
    assert rows_of({"kernel.py": "a"}, {"kernel.py": "a"}) == [(1, "a", 1, "a")]
