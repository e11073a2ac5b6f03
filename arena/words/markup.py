"""HTML pages from escaped parts. A page is one file: it loads nothing, and runs no script but the one for sorting."""

import base64
import hashlib
import html
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from arena.words.untrusted_text import printable

STYLE = Path(__file__).with_name("markup.css").read_text(encoding="utf-8")
SORTING = Path(__file__).with_name("sorting.js").read_text(encoding="utf-8")
"""The script of `document(..., sorts=True)`: a click on a heading sorts its table."""
MOST_CHARACTERS = 200_000
"""Most characters of one text on a page; the journals have all of it."""
_ROLES = {"Keyword": "keyword", "Operator.Word": "keyword", "Literal.String": "string", "Literal.Number": "number"}
_ROLES |= {"Comment.Preproc": "keyword", "Comment": "muted", "Name.Function": "defined", "Name.Class": "defined"}
_C_SIGNS = re.compile(r"__global__|__device__|#include|extern \"C\"")


class Markup(str):
    """HTML in which foreign text is escaped."""

    __slots__ = ()


def text(words: str) -> Markup:
    """Escapes foreign text as HTML. Removes control characters and direction marks, and shortens long texts."""
    return Markup(html.escape(_shown(words)))


def _shown(words: str) -> str:
    left = len(words) - MOST_CHARACTERS
    return printable(words[:MOST_CHARACTERS]) + (f"\n… {left} more characters" if left > 0 else "")


def joined(*parts: str) -> Markup:
    """Joins parts; those that are not `Markup` are escaped."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts))


def element(tag: str, *inside: str, **attributes: str) -> Markup:
    """Returns an element. `class_` becomes class, `data_label` becomes data-label; empty attributes are left out."""
    named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value}
    given = "".join(f' {name}="{text(value)}"' for name, value in named.items())
    return Markup(f"<{tag}{given}>{joined(*inside)}</{tag}>")


def folded(summary: str, *inside: str, is_open: bool = False) -> Markup:
    """Returns a part that a reader can open and close."""
    return element("details", element("summary", summary), *inside, open="open" if is_open else "")


def named(words: str) -> Markup:
    """Returns a name that somebody chose. Right-to-left letters in it do not affect the text beside it."""
    return element("bdi", words)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], sorts: bool = False) -> Markup:
    """Returns a table, empty without rows. On a narrow screen each row is a block with the heads as labels.

    sorts: a click on a head sorts the rows, by the value of a `keyed` cell, else by text.
    """
    if not rows:
        return Markup()
    head = element("thead", element("tr", *(element("th", each) for each in heads))) if any(heads) else Markup()
    body = [
        element("tr", *(element("td", cell, data_label=label) for label, cell in zip(heads, row, strict=True)))
        for row in rows
    ]
    return element("table", head, element("tbody", *body), class_="rows sorts" if sorts else "rows")


def keyed(cell: str, key: float) -> Markup:
    """Returns a cell with the number that it is sorted by."""
    return element("data", cell, value=f"{key:.6g}")


def document(title: str, *body: str, sorts: bool = False, drawn: bool = False) -> str:
    """A whole page.

    A browser runs nothing and loads nothing else, even if a text got through as HTML (Content-Security-Policy).

    sorts: whether a table can be sorted. drawn: whether elements have styles of their own, as matplotlib's drawings.
    """
    policy = f"default-src 'none'; style-src '{_digest(STYLE)}'; base-uri 'none'; form-action 'none'"
    policy += f"; script-src '{_digest(SORTING)}'" if sorts else ""
    policy += "; style-src-attr 'unsafe-inline'" if drawn else ""
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{text(title)}</title><style>{STYLE}</style>"
    )
    script = f"<script>{SORTING}</script>" if sorts else ""
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{element("main", *body)}{script}</body></html>\n'


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def code(file_name: str, source: str) -> Markup:
    """Returns the text of a source file. Python has colours, and CUDA and C++ in its strings."""
    return element("pre", *(_python(_shown(source)) if file_name.endswith(".py") else [source]))


def _python(source: str) -> Iterator[str]:
    from pygments.lexers import CudaLexer, PythonLexer  # type: ignore[import-untyped]

    for role, words in _runs(PythonLexer(stripnl=False, ensurenl=False), source):
        inside = _runs(CudaLexer(stripnl=False, ensurenl=False), words) if _C_SIGNS.search(words) else [(role, words)]
        yield from (element("span", part, class_=each) if each else part for each, part in inside)


def _runs(lexer: Any, source: str) -> list[tuple[str, str]]:
    """Returns (class, text) of the tokens, neighbours of the same class joined. The class of plain text is empty."""
    tokens = ((_role(str(kind).removeprefix("Token.")), words) for kind, words in lexer.get_tokens(source))
    return [(role, "".join(words for _, words in run)) for role, run in groupby(tokens, itemgetter(0))]


def _role(kind: str) -> str:
    return next((role for prefix, role in _ROLES.items() if kind.startswith(prefix)), "")
