"""Colours for Python sources, for CUDA or C++ in their string literals, and for Markdown texts with fenced code.

Each line is lexed alone and cached, so a keystroke costs one line, whatever the length of the file. One quick scan
of the whole text finds the triple-quoted strings that lines lie in, and the language of each string.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, Literal, NamedTuple

Language = Literal["python", "cuda", "string", "plain", "prose", "diff"]
DIFF_KINDS = {"+": "added", "-": "removed", "@": "place"}
"""The kinds of the lines of a diff, by their first character."""


class StyledSpan(NamedTuple):
    """Columns [start, end) of a line that are drawn in one style."""

    start: int
    end: int
    kind: str
    """ "keyword", "name", "builtin", "string", "number", "comment" or "decorator"; in a diff one of DIFF_KINDS."""


class Part(NamedTuple):
    """Columns [start, end) of a line in one language; end None = to the end of the line."""

    start: int
    end: int | None
    language: Language


_STRING = re.compile(
    r"#[^\n]*"
    r"|(?P<triple>'''|\"\"\")(?P<body>(?:[^\\]|\\.)*?)(?:(?P=triple)|\Z)"
    r"|\"(?:[^\"\\\n]|\\.)*\"?"
    r"|'(?:[^'\\\n]|\\.)*'?",
    re.DOTALL,
)
_C_SIGNS = re.compile(
    r"__global__|__device__|#include|#define|extern\s+\"C\"|\btemplate\s*<"
    r"|\b(?:void|int|float|double|static|using|px_\w+)\b[^\n]*[;{][ \t]*(?://[^\n]*)?$",
    re.MULTILINE,
)
"""In a string of CUDA or C++. Words that prose has, too, count in lines that end as statements do."""
_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_FENCE_LINE = re.compile(r"^ {0,3}(?:`{3}|~{3})", re.MULTILINE)
_HEADING = re.compile(r"#{1,6} |<<< [\w ]+ >>>$")
_OF_INFO: dict[str, Language] = {
    "python": "python",
    "py": "python",
    "cuda": "cuda",
    "cpp": "cuda",
    "c++": "cuda",
    "c": "cuda",
}


def language_of(name: str) -> Language:
    """The language of a file, by its name. A Markdown file is "prose", with code in its fences."""
    suffix = name.rpartition(".")[2].lower()
    if suffix in {"cu", "cuh", "cpp", "cc", "c", "h", "hpp"}:
        return "cuda"
    if suffix in ("md", "diff"):
        return "prose" if suffix == "md" else "diff"
    return "python" if suffix == "py" else "plain"


def has_fence(text: str) -> bool:
    """Whether a Markdown text has a fenced block, complete or not."""
    return _FENCE_LINE.search(text) is not None


def line_languages(lines: Sequence[str]) -> list[Language]:
    """Returns the language of every Markdown line: "prose", or that of its fenced block. A fence line is "string"."""
    found: list[Language] = []
    fence = ""
    inside: Language = "prose"
    for line in lines:
        match = _FENCE.match(line)
        closes = match is not None and match["fence"].startswith(fence) and not match["info"].strip()
        if match is not None and not fence:
            info = match["info"].split()
            fence, inside = match["fence"], _OF_INFO.get(info[0].lower(), "plain") if info else "plain"
            found.append("string")
        elif fence and closes:
            fence = ""
            found.append("string")
        else:
            found.append(inside if fence else "prose")
    return found


def _fenced_parts(lines: Sequence[str]) -> dict[int, list[Part]]:
    """Returns the parts of the fenced lines of a Markdown text, with the languages inside their strings."""
    parts: dict[int, list[Part]] = {}
    languages = line_languages(lines)
    first = 0
    for language, group in groupby(languages):
        last = first + len(list(group))
        if language != "prose":
            within = parts_of(lines[first:last], language)
            for row in range(first, last):
                parts[row] = _whole(within.get(row - first, ()), language)
        first = last
    return parts


def _whole(parts: Sequence[Part], language: Language) -> list[Part]:
    """Fills the gaps between a line's parts with parts in the line's own language."""
    found: list[Part] = []
    cursor = 0
    for part in parts:
        found += [Part(cursor, part.start, language), part]
        if part.end is None:
            return found
        cursor = part.end
    return [*found, Part(cursor, None, language)]


def parts_of(lines: Sequence[str], language: Language) -> dict[int, list[Part]]:
    """Returns the parts of every line that is not entirely in `language`, by line number."""
    if language == "prose":
        return _fenced_parts(lines)
    if language != "python":
        return {}
    text = "\n".join(lines)
    if "'''" not in text and '"""' not in text:
        return {}
    starts = [0]
    for text_line in lines:
        starts.append(starts[-1] + len(text_line) + 1)
    parts: dict[int, list[Part]] = {}
    first = 0
    for match in _STRING.finditer(text):
        if match["triple"] is None:
            continue
        inside: Language = "cuda" if _C_SIGNS.search(match["body"]) else "string"
        begin, end = (match.start("body"), match.end("body")) if inside == "cuda" else match.span()
        while starts[first + 1] <= begin:
            first += 1
        row = first
        while row < len(lines) and starts[row] < end:
            left = max(begin - starts[row], 0)
            right = end - starts[row] if end < starts[row + 1] - 1 else None
            parts.setdefault(row, []).append(Part(left, right, inside))
            row += 1
        first = max(first, row - 1)
    return parts


@lru_cache(maxsize=20_000)
def spans_of(text: str, language: Language) -> tuple[StyledSpan, ...]:
    """The coloured spans of one line in one language."""
    if language == "plain" or not text.strip():
        return ()
    if language == "prose":
        return (StyledSpan(0, len(text), "name"),) if _HEADING.match(text) else ()
    if language == "diff":
        return (StyledSpan(0, len(text), DIFF_KINDS[text[0]]),) if text[0] in DIFF_KINDS else ()
    if language == "string":
        return (StyledSpan(0, len(text), "string"),)
    spans: list[StyledSpan] = []
    whole = text + "\n"  # the lexer ends a // comment at a line feed
    for start, token, value in _lexer(language).get_tokens_unprocessed(whole):
        kind = _kind(str(token))
        if kind and start < len(text):
            spans.append(StyledSpan(start, min(start + len(value), len(text)), kind))
    return tuple(spans)


def line_spans(text: str, parts: Sequence[Part], language: Language) -> list[StyledSpan]:
    """The coloured spans of a line whose `parts` are in other languages."""
    if not parts:
        return list(spans_of(text, language))
    spans: list[StyledSpan] = []
    cursor = 0
    for part in parts:
        end = len(text) if part.end is None else part.end
        spans += _shifted(text, cursor, part.start, language)
        spans += _shifted(text, part.start, end, part.language)
        cursor = end
    return spans + _shifted(text, cursor, len(text), language)


def _shifted(text: str, start: int, end: int, language: Language) -> list[StyledSpan]:
    piece = text[start:end]
    if language == "python" and piece.strip("rbfuRBFU") in {'"""', "'''"}:
        return [StyledSpan(start, end, "string")]
    return [StyledSpan(s + start, e + start, kind) for s, e, kind in spans_of(piece, language)]


@lru_cache(maxsize=2)
def _lexer(language: Language) -> Any:
    # imported when the first line is coloured, not when the app starts
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]

    return get_lexer_by_name(language)


@lru_cache(maxsize=500)
def _kind(token: str) -> str:
    for prefix, kind in _KINDS:
        if token.startswith(prefix):
            return kind
    return ""


_KINDS = (
    ("Token.Comment", "comment"),
    ("Token.Keyword.Type", "builtin"),
    ("Token.Keyword", "keyword"),
    ("Token.Operator.Word", "keyword"),
    ("Token.Name.Decorator", "decorator"),
    ("Token.Name.Builtin", "builtin"),
    ("Token.Name.Function", "name"),
    ("Token.Name.Class", "name"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
)
