"""A label, and beside it a text that is wrapped below itself."""

from textual.content import Content

LEAST = 16
"""Columns of the text, however narrow the pane."""


def hanging(label: Content, text: Content, width: int, column: int) -> list[Content]:
    """The rows of a pane `width` cells wide; the text begins in `column`."""
    lines = text.wrap(max(width - column, LEAST))
    first = label + Content(" " * max(1, column - label.cell_length)) + lines[0]
    return [first, *(Content(" " * column) + line for line in lines[1:])]
