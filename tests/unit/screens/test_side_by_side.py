"""Rows of two sources, side by side."""

from screens.kernel.source.side_by_side import DiffRow, rows_of


def test_changed_lines_stand_opposite_each_other() -> None:
    rows = rows_of("a\nb\nc\n", "a\nB\nmore\nc\n")
    assert rows == [
        DiffRow(1, "a", 1, "a"),
        DiffRow(2, "b", 2, "B"),
        DiffRow(0, "", 3, "more"),
        DiffRow(3, "c", 4, "c"),
    ]
    assert [row.same for row in rows] == [True, False, False, True]


def test_removed_lines_have_nothing_opposite() -> None:
    assert rows_of("a\nb\n", "b\n") == [DiffRow(1, "a", 0, ""), DiffRow(2, "b", 1, "b")]
    assert rows_of("", "") == []
