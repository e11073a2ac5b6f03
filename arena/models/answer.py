"""A model's answer, and the kernel file in it."""

import ast
import builtins
import re
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from arena.models.budget import Spent
from arena.models.conversation import Finish, ToolCall
from arena.models.fences import Block, blocks_of, is_python, opening_of, read_answer
from arena.models.other_forms import WRITES_CALLS_AS_TEXT, is_kernel, other_forms
from sandbox.protocol.kernel_files import MAIN, Kernel, fault_in, is_file_name

_FENCE = "`" * 3
_AGAIN = "\n(The answer was begun again.)\n\n"
"""Text before this mark is not part of the answer. It stays in the text because it was already shown."""
_OVERLAP = 4000
"""Characters at the end of a truncated answer that its continuation may repeat."""
_WHOLE_LINE = 12
"""Minimum characters of a repetition. A shorter one may be chance, unless it is a whole line."""
_PREAMBLE = re.compile(
    r"\A\s*[A-Z*(][^\n`=]*\b(?:continuing|continued|continuation|resuming|picking up|left off|cut off|stopped|the rest"
    r"|remaining)\b[^\n`=]*[:.!…*)]+[ \t]*\n(?:[ \t]*\n)*",
    re.IGNORECASE,
)
"""A sentence before a continuation, such as "Continuing from where I stopped:"."""
_FENCES = re.compile(r"^ {0,3}```", re.MULTILINE)


@dataclass(frozen=True)
class ModelAnswer:
    """One answer of a model."""

    text: str
    finish: Finish
    spent: Spent
    continued: int = 0
    """How often it was truncated and continued."""
    calls: tuple[ToolCall, ...] = ()
    """Tool calls whose results the model needs."""
    kept: tuple[dict[str, Any], ...] = ()
    """Parts of the answer that must go back to the provider with the results of the calls."""

    @property
    def source(self) -> str:
        """The kernel's text; empty if there is none. In a truncated answer only complete blocks count."""
        return self.kernel.source

    @property
    def kernel(self) -> Kernel:
        """The kernel with all its files; an empty one if there is none."""
        if self.finish.reason == "unreadable":
            return Kernel("")
        return whole_kernel(self.text) if self._cut_off else kernel_of(self.text)

    @property
    def _cut_off(self) -> bool:
        return self.finish.reason in ("length", "broken", "budget")

    @property
    def outcome(self) -> str:
        """ "kernel", "refusal", "unreadable", "empty", "prose" (an answer without code), "truncated", or "budget"."""
        if self.finish.reason == "refusal":
            return "refusal"
        if self.finish.reason == "unreadable":
            return "unreadable"
        if not self.text.strip():
            return {"budget": "budget", "length": "truncated"}.get(self.finish.reason, "empty")
        if self._cut_off and not self.source:
            return "budget" if self.finish.reason == "budget" else "truncated"
        return "kernel" if self.source.strip() else "prose"

    @property
    def calls_as_text(self) -> bool:
        """Whether there is no kernel because the model wrote a tool call as text, and the server did not parse it."""
        return self.outcome == "prose" and WRITES_CALLS_AS_TEXT.search(self.text) is not None

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
            case "prose" if self.calls_as_text:
                return "the answer has a tool call as text, without a whole kernel"
            case "prose":
                first = " ".join(self.text.split())
                return f"the answer has no code: {first[:120]}"
            case "truncated":
                again = " again and again" if self.continued else ""
                return self.finish.detail or f"the answer was cut off{again}"
            case "budget":
                return self.finish.detail or "the budget is spent"
            case _:
                return ""


def kernel_of(text: str) -> Kernel:
    """Returns the kernel of an answer: the files that its fences name if kernel.py is among them, else one file.

    One file is the last complete kernel, with the blocks that it needs. Usage examples, output and drafts are left out.
    If no kernel is complete, the Python of the answer is returned, so that the verdict can say what is wrong.
    An answer that consists of Python only needs no fence.
    """
    text = text.rpartition(_AGAIN)[2]
    found = read_answer(text)
    if (named := _named(found.blocks)) is not None:
        return named
    blocks = [block for block in found.blocks if is_python(block) and block.text.strip()]
    if not blocks:
        plain = found.plain.strip() + "\n" if not found.blocks and is_kernel(found.plain) else ""
        other = None if plain and not _names_of(plain).missing else _in_other_forms(text)
        return other or (kernel_of(found.thought) if found.thinking and not plain else Kernel(plain))
    if source := _whole(blocks):
        later = _in_other_forms("".join(found.rest), prose=False)
        return later if later and not _names_of(later.source).missing else Kernel(source)
    if kernel := _in_other_forms(text, prose=not blocks[-1].closed):
        return kernel
    defining = [block for block in blocks if _DEFINES.search(block.text)]
    return Kernel(_joined(defining[-1:] or blocks))


def _in_other_forms(text: str, closed: bool = False, prose: bool = True) -> Kernel | None:
    """Returns the last whole kernel in another form than a fenced block, if possible without undefined names; or None."""
    found = [_named(blocks_of(text)) or Kernel(text) for text in other_forms(text, closed, prose)]
    kernels = [kernel for kernel in found if is_kernel(kernel.source)]
    whole = [kernel for kernel in kernels if not _names_of(kernel.source).missing and not _is_stub(kernel.source)]
    return next(reversed(whole or kernels), None)


def _named(blocks: Sequence[Block]) -> Kernel | None:
    """Returns the kernel of several files that the fences name, else None. The last block of a name counts."""
    texts = {block.name: block.text.strip("\n") + "\n" for block in blocks}
    files = {name: text.encode(errors="replace") for name, text in texts.items() if is_file_name(name)}
    kernel = Kernel(texts.get(MAIN, ""), files)
    return kernel if kernel.source and files and not fault_in(kernel) else None


def whole_kernel(text: str) -> Kernel:
    """Returns the kernel of a truncated answer, from closed blocks only; an empty one if none is complete."""
    text = text.rpartition(_AGAIN)[2]
    blocks = blocks_of(text)
    if (named := _named(blocks)) is not None:
        return named if blocks[-1].closed else Kernel("")
    source = _whole([block for block in blocks if block.closed and is_python(block)])
    return Kernel(source) if source else _in_other_forms(text, closed=True, prose=False) or Kernel("")


def has_whole_kernel(text: str) -> bool:
    """Whether a truncated answer has a complete kernel, and no open block after it."""
    blocks = blocks_of(text.rpartition(_AGAIN)[2])
    return bool(blocks) and blocks[-1].closed and bool(whole_kernel(text).source)


_DEFINES = re.compile(r"^(?:async )?def solution\b|^solution\b.*=", re.MULTILINE)


class _Names(NamedTuple):
    """Names of a block: those it binds at module level, and those it uses without binding them."""

    bound: frozenset[str]
    missing: frozenset[str]


def _whole(blocks: Sequence[Block]) -> str:
    """Returns the last kernel without undefined names, else the last one that parses, else an empty text."""
    names = {at: _names_of(block.text) for at, block in enumerate(blocks)}
    defining = [at for at in names if "solution" in names[at].bound]
    kernels = [at for at in defining if not _is_stub(blocks[at].text)] or defining
    parts = names.keys() - defining
    last = ""
    for at in reversed(kernels):
        chosen, missing = {at}, set(names[at].missing)
        while added := [part for part in parts - chosen if names[part].bound & missing]:
            chosen.update(added)
            missing.update(*(names[part].missing for part in added))
            missing.difference_update(*(names[part].bound for part in chosen))
        source = _joined([blocks[part] for part in sorted(chosen)])
        if not missing:
            return source
        last = last or source
    return last


def _joined(blocks: Sequence[Block]) -> str:
    return "\n\n\n".join(block.text.strip("\n") for block in blocks) + "\n"


def _names_of(source: str) -> _Names:
    try:
        top = symtable.symtable(source, "kernel.py", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return _Names(frozenset(), frozenset())
    symbols = [symbol for table in _tables(top) for symbol in table.get_symbols()]
    bound = {
        symbol.get_name()
        for symbol in (*top.get_symbols(), *(symbol for symbol in symbols if symbol.is_declared_global()))
        if symbol.is_assigned() or (symbol.is_imported() and symbol.get_name() != "solution")  # a test imports it
    }
    used = {symbol.get_name() for symbol in symbols if symbol.is_referenced() and symbol.is_global()}
    known = bound | set(dir(builtins)) | {"__file__", "__name__"}
    star = re.search(r"^[ \t]*from\b.*\bimport[ \t]*\*", source, re.MULTILINE)
    return _Names(frozenset(bound), frozenset() if star else frozenset(used - known))


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def _is_stub(source: str) -> bool:
    """Whether the body of `solution` is only a docstring, `...` or `pass`."""
    found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == "solution"]
    return bool(found) and all(
        isinstance(line, ast.Pass) or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        for line in found[-1].body
    )


def join_continuation(text: str, more: str) -> str:
    """Joins a truncated answer and its continuation.

    Drops an introductory sentence, a repeated opening fence and repeated text from the continuation.
    """
    blocks = blocks_of(text)
    if blocks and not blocks[-1].closed:
        head = _PREAMBLE.sub("", more, count=1)
        said = head != more
        first, newline, rest = head.lstrip("\n").partition("\n")
        # A bare fence opens a block if another fence closes it. Alone it closes the truncated block.
        opening = opening_of(first) is not None and (
            first.strip() != _FENCE or said or len(_FENCES.findall(head)) % 2 == 0
        )
        if newline and opening:
            if has_whole_kernel(head):  # the model repeated the answer from its start
                return f"{text}\n{_FENCE}\n{_AGAIN}{head}"
            more = rest
        elif said:
            more = head
    tail = text[-_OVERLAP:]
    for length in range(min(len(tail), len(more)), 0, -1):
        if tail.endswith(more[:length]):
            repeated = more[:length]
            if length >= _WHOLE_LINE or (repeated.strip() and repeated.endswith("\n")):
                return text + more[length:]
            break
    return text + more
