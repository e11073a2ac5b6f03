"""Line ends of a kernel file: an editor knows lines alone, so the ends of the file are put back when it is saved."""

from collections import Counter
from difflib import SequenceMatcher
from functools import lru_cache


def _lines(text: str) -> list[str]:
    """The lines without their ends; as many as there are line ends, and one more."""
    lines = f"{text}|".splitlines()
    lines[-1] = lines[-1][:-1]
    return lines


def plain(text: str) -> str:
    """The text with \\n at the end of every line."""
    return "\n".join(_lines(text))


@lru_cache(maxsize=4)
def with_line_ends(text: str, model: str) -> str:
    """The lines of `text` with the line ends that they have in `model`; new lines get the end most used there."""
    lines, old = _lines(text), _lines(model)
    ends = [row[len(line) :] for row, line in zip(model.splitlines(keepends=True), old, strict=False)]
    usual = Counter(filter(None, ends)).most_common(1)
    common = usual[0][0] if usual else "\n"
    found = [common] * len(lines)
    if len(set(ends) - {""}) > 1:
        matcher = SequenceMatcher(None, old, lines, autojunk=False)
        for _, first, last, start, stop in matcher.get_opcodes():  # an edited line keeps its end, too
            kept = ends[first:last][: stop - start]
            found[start : start + len(kept)] = [end or common for end in kept]
    found[-1] = ""
    return "".join(line + end for line, end in zip(lines, found, strict=True))
