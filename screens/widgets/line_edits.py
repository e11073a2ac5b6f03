"""Edits of whole lines: indentation and comment signs. Texts in, texts out."""

from collections.abc import Sequence


def indented(lines: Sequence[str], width: int) -> list[str]:
    """One level deeper; blank lines stay as they are."""
    return [" " * width + line if line.strip() else line for line in lines]


def dedented(lines: Sequence[str], width: int) -> list[str]:
    """One level less deep, as far as a line is indented at all."""
    found = []
    for line in lines:
        blanks = len(line) - len(line.lstrip(" "))
        found.append(line[1:] if line.startswith("\t") else line[min(blanks, width) :])
    return found


def comment_toggled(lines: Sequence[str], sign: str) -> list[str]:
    """Comments without their sign, if all lines are comments; else every line that is not blank as a comment.

    The signs stand in one column, that of the least indented line.
    """
    full = [line for line in lines if line.strip()]
    if full and all(line.lstrip().startswith(sign) for line in full):
        return [_uncommented(line, sign) for line in lines]
    column = min((len(line) - len(line.lstrip()) for line in full), default=0)
    return [f"{line[:column]}{sign} {line[column:]}" if line.strip() else line for line in lines]


def _uncommented(line: str, sign: str) -> str:
    before, found, after = line.partition(sign)
    return before + after.removeprefix(" ") if found else line
