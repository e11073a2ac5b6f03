"""A label with a text beside it; the text's further lines are indented to where it begins."""

from textual.content import Content

LEAST = 16
"""Minimum columns of the text, also in a narrower pane."""


def hanging(label: Content, text: Content, width: int, column: int) -> list[Content]:
    """The rows of a pane `width` cells wide; the text begins in `column`."""
    lines = text.wrap(max(width - column, LEAST))
    first = label + Content(" " * max(1, column - label.cell_length)) + lines[0]
    return [first, *(Content(" " * column) + line for line in lines[1:])]
