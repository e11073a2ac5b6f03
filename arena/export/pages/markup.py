"""HTML that others may have had a hand in: every text is escaped, except what this module has made."""

import base64
import hashlib
import html
from pathlib import Path

from arena.foreign_text import printable

STYLE = Path(__file__).with_name("pages.css").read_text(encoding="utf-8")
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'"
"""Content-Security-Policy: a browser runs no script and loads nothing, even if a text got through as HTML."""
MOST_CHARACTERS = 200_000
"""Of one text on a page; the journals have all of it."""


class Markup(str):
    """HTML. Only `text`, `element` and `joined` make it."""

    __slots__ = ()


def text(words: str) -> Markup:
    """Foreign text as HTML: without control characters and direction marks, and escaped."""
    shown = printable(words[:MOST_CHARACTERS])
    left = len(words) - MOST_CHARACTERS
    return Markup(html.escape(shown + (f"\n… {left} more characters" if left > 0 else "")))


def joined(*parts: str) -> Markup:
    """Parts in a row; those that are no markup are escaped."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts))


def element(tag: str, *inside: str, **attributes: str) -> Markup:
    """An element. Names of attributes: `class_` is class, `data_label` is data-label; empty ones are left out."""
    named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value}
    given = "".join(f' {name}="{text(value)}"' for name, value in named.items())
    return Markup(f"<{tag}{given}>{joined(*inside)}</{tag}>")


def folded(summary: str, *inside: str, is_open: bool = False) -> Markup:
    """A part that a reader can open."""
    return element("details", element("summary", summary), *inside, open="open" if is_open else "")


def name(words: str) -> Markup:
    """A name that somebody chose; letters that are written from the right do not turn what is beside it."""
    return element("bdi", words)


def document(title: str, *body: str) -> str:
    """A whole page."""
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{text(title)}</title><style>{STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{element("main", *body)}</body></html>\n'
