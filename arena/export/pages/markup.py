"""HTML from texts that others wrote: every text is escaped, except markup that this module has made."""

import base64
import hashlib
import html
from pathlib import Path

from arena.words.untrusted_text import printable

STYLE = Path(__file__).with_name("pages.css").read_text(encoding="utf-8")
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'"
"""Content-Security-Policy: a browser runs no script and loads nothing, even if a text got through as HTML."""
MOST_CHARACTERS = 200_000
"""Most characters of one text on a page; the journals have all of it."""


class Markup(str):
    """HTML. Only `text`, `element` and `joined` make it."""

    __slots__ = ()


def text(words: str) -> Markup:
    """Escapes foreign text as HTML. Removes control characters and direction marks, and shortens long texts."""
    shown = printable(words[:MOST_CHARACTERS])
    left = len(words) - MOST_CHARACTERS
    return Markup(html.escape(shown + (f"\n… {left} more characters" if left > 0 else "")))


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


def name(words: str) -> Markup:
    """Returns a name that somebody chose. Right-to-left letters in it do not affect the text beside it."""
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
