"""Carets under a long line stay in view."""

import pytest

from screens.kernel.panes.failure_view import with_marks_in_view

LINE = "    total = first(tensor) + second(tensor undefined)"


def marked(words: str) -> str:
    return f"{LINE}\n{' ' * LINE.index(words)}{'^' * len(words)}"


def test_a_line_that_fits_stays_as_it_is():
    assert with_marks_in_view(marked("undefined"), 60) == marked("undefined")
    assert with_marks_in_view(marked("total"), 20) == marked("total")


@pytest.mark.parametrize("words", ["second", "undefined", "tensor undefined"])
@pytest.mark.parametrize("width", [20, 24, 30])
def test_the_marked_words_are_in_view_and_stay_above_their_marks(words, width):
    line, marks = with_marks_in_view(marked(words), width).split("\n")
    assert line.startswith("…")
    begin, end = marks.index("^"), len(marks)
    assert end < width
    assert line[begin:end] == words


def test_of_words_wider_than_the_pane_the_beginning_is_in_view():
    line, marks = with_marks_in_view(marked("second(tensor undefined"), 12).split("\n")
    assert line.startswith("…second(")
    assert marks.startswith(" ^^^")


def test_lines_without_carets_are_left_to_the_ellipsis():
    text = f"Traceback:\n{LINE}\nNameError: undefined"
    assert with_marks_in_view(text, 20) == text


def test_compilers_print_a_bar_before_their_carets():
    line, marks = with_marks_in_view(
        "12 |     sum += of_a_long_name(nowhere);\n   |            ^~~~~~~~~~~~~~", 24
    ).split("\n")
    assert line[marks.index("^") :].startswith("of_a_long_name")
