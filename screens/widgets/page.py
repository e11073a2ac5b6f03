"""Markdown to read: problem cards, the help."""

from typing import Any

from textual.content import Content
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock, MarkdownFence


class _Fence(MarkdownFence):
    """Code that names no language is text. Textual guesses one, and marks as errors what that does not know: Σ, X̂, ·."""

    @classmethod
    def highlight(cls, code: str, language: str, *arguments: Any, **named: Any) -> Content:
        return super().highlight(code, language or "text", *arguments, **named)


class Page(Markdown):
    """A page whose links are text."""

    def __init__(self, text: str) -> None:
        super().__init__(text, open_links=False)

    def get_block_class(self, block_name: str) -> type[MarkdownBlock]:
        return _Fence if block_name in ("fence", "code_block") else super().get_block_class(block_name)
