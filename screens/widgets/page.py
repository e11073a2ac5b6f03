"""Markdown to read: problem cards, the help."""

from typing import Any

from textual.content import Content
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock, MarkdownFence


class _Fence(MarkdownFence):
    """Code that names no language is text. Textual would guess a language and mark Σ, X̂ and · as errors."""

    @classmethod
    def highlight(cls, code: str, language: str, *arguments: Any, **named: Any) -> Content:
        return super().highlight(code, language or "text", *arguments, **named)


class Page(Markdown):
    """A page that does not open its links."""

    def __init__(self, text: str) -> None:
        super().__init__(text, open_links=False)

    def get_block_class(self, block_name: str) -> type[MarkdownBlock]:
        return _Fence if block_name in ("fence", "code_block") else super().get_block_class(block_name)
