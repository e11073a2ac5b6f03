"""A model's answer, and the kernel file in it."""

import ast
import re
from dataclasses import dataclass
from typing import Any

from arena.models.budget import Spent
from arena.models.conversation import Finish, ToolCall

_OPENING = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^`\n]*$")
_FENCE = "`" * 3
_AGAIN = "\n(The answer was begun again.)\n\n"
"""What is before it counts no more; it stays in the text, because it was shown already."""
_PYTHON = frozenset({"", "python", "py", "python3", "py3", "{python}", "{.python}"})
_OVERLAP = 4000
"""Characters at the end of a truncated answer that its continuation may repeat."""
_WHOLE_LINE = 12
"""A repetition shorter than this may be chance, unless it is a whole line."""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    text: str
    closed: bool


@dataclass(frozen=True)
class ModelAnswer:
    """One answer of a model."""

    text: str
    finish: Finish
    spent: Spent
    continued: int = 0
    """Times it was cut off and continued."""
    calls: tuple[ToolCall, ...] = ()
    """Tool calls that it waits for."""
    kept: tuple[dict[str, Any], ...] = ()
    """Parts of the answer that its provider needs with the results of the calls."""

    @property
    def source(self) -> str:
        """The kernel's text; empty when there is none."""
        return kernel_source(self.text) if self.finish.reason != "unreadable" else ""

    @property
    def outcome(self) -> str:
        """ "kernel", "refusal", "unreadable", "empty", "prose" (an answer without code), "truncated", or "budget"."""
        if self.finish.reason == "refusal":
            return "refusal"
        if self.finish.reason == "unreadable":
            return "unreadable"
        if not self.text.strip():
            return "budget" if self.finish.reason == "budget" else "empty"
        if self.finish.reason in {"length", "broken", "budget"} and not has_whole_kernel(self.text):
            return "budget" if self.finish.reason == "budget" else "truncated"
        return "kernel" if self.source.strip() else "prose"

    @property
    def reason(self) -> str:
        """The reason why there is no kernel, in one sentence; empty when there is one."""
        if self.calls and self.outcome in ("empty", "prose"):
            return "it called tools again and again, and there is no kernel in its answer"
        match self.outcome:
            case "refusal":
                return f"the model declined{': ' if self.finish.detail else ''}{self.finish.detail[:200]}"
            case "unreadable":
                return "a part of the answer cannot be read"
            case "empty":
                return "the answer is empty"
            case "prose":
                first = " ".join(self.text.split())
                return f"the answer has no code: {first[:120]}"
            case "truncated":
                return (
                    "the answer was cut off again and again" if self.continued else "the answer was cut off"
                )
            case "budget":
                return self.finish.detail or "the budget is spent"
            case _:
                return ""


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a Markdown text, in order; the last one may be open."""
    blocks = []
    lines: list[str] = []
    fence, language = "", ""
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if fence:
            if bare.startswith(fence) and not bare.strip(fence[0]) and len(line) - len(line.lstrip()) <= 3:
                blocks.append(Block(language, "".join(lines), True))
                fence = ""
            else:
                lines.append(line)
        elif opening := _OPENING.match(line.rstrip("\r\n")):
            fence, language, lines = opening[1], opening[2].lower(), []
    if fence:
        blocks.append(Block(language, "".join(lines), False))
    return blocks


def kernel_source(text: str) -> str:
    """The Python blocks of an answer as one file.

    Of several that define `solution` the last is meant: the others were drafts. An answer that is Python
    throughout needs no fence.
    """
    text = text.rpartition(_AGAIN)[2]
    blocks = blocks_of(text)
    if not blocks:
        return text.strip() + "\n" if _is_kernel(text) else ""
    python = [block for block in blocks if block.language in _PYTHON and block.text.strip()]
    defining = [block for block in python if _DEFINES.search(block.text)]
    if not python:
        return ""
    drafts = defining[:-1]
    kept = [block for block in python if block not in drafts]
    joined = "\n\n\n".join(block.text.strip("\n") for block in kept) + "\n"
    if len(kept) > 1 and defining and not _parses(joined) and _parses(defining[-1].text):
        return defining[-1].text.strip("\n") + "\n"  # the others were examples, not parts
    return joined


def has_whole_kernel(text: str) -> bool:
    """Whether a cut-off answer has a whole kernel."""
    blocks = blocks_of(text)
    return bool(blocks) and blocks[-1].closed and _is_kernel(kernel_source(text))


_DEFINES = re.compile(r"^def solution\b", re.MULTILINE)


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _is_kernel(text: str) -> bool:
    return _DEFINES.search(text) is not None and _parses(text)


def join_continuation(text: str, more: str) -> str:
    """A truncated answer and what continues it: a fence that was opened anew and repeated text are dropped."""
    blocks = blocks_of(text)
    if blocks and not blocks[-1].closed:
        head = more.lstrip("\n")
        first, newline, rest = head.partition("\n")
        if newline and _OPENING.match(first):
            if has_whole_kernel(head):  # it began again from the start
                return f"{text}\n{_FENCE}\n{_AGAIN}{head}"
            more = rest
    tail = text[-_OVERLAP:]
    for length in range(min(len(tail), len(more)), 0, -1):
        if tail.endswith(more[:length]):
            repeated = more[:length]
            if length >= _WHOLE_LINE or (repeated.strip() and repeated.endswith("\n")):
                return text + more[length:]
            break
    return text + more
