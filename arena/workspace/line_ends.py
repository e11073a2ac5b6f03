"""Keeps the line ends of a kernel file. The editor only handles lines, so saving restores the line ends."""

from collections import Counter
from difflib import SequenceMatcher
from functools import lru_cache


def _lines(text: str) -> list[str]:
    """Splits text into lines without line ends: one line more than there are line ends."""
    lines = f"{text}|".splitlines()
    lines[-1] = lines[-1][:-1]
    return lines


def plain(text: str) -> str:
    """Returns the text with \\n for every line end."""
    return "\n".join(_lines(text))


@lru_cache(maxsize=4)
def with_line_ends(text: str, model: str) -> str:
    """Returns `text`: its lines get the line ends they have in `model`, new lines the most common one."""
    lines, old = _lines(text), _lines(model)
    ends = [row[len(line) :] for row, line in zip(model.splitlines(keepends=True), old, strict=False)]
    usual = Counter(filter(None, ends)).most_common(1)
    common = usual[0][0] if usual else "\n"
    found = [common] * len(lines)
    if len(set(ends) - {""}) > 1:
        matcher = SequenceMatcher(None, old, lines, autojunk=False)
        for _, first, last, start, stop in matcher.get_opcodes():  # edited lines keep their line ends, too
            kept = ends[first:last][: stop - start]
            found[start : start + len(kept)] = [end or common for end in kept]
    found[-1] = ""
    return "".join(line + end for line, end in zip(lines, found, strict=True))
