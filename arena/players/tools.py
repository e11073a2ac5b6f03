"""The tools that an agent's model may call: compile a kernel, run it, read about the kit.

Every call is answered with a text, also a wrong one. Only a failed harness raises.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import sandbox
from arena.foreign_text import printable
from arena.models.answer import kernel_source
from arena.models.connection.calls import ARGUMENT_CHARACTERS
from arena.models.conversation import Tool, ToolCall, ToolResult
from arena.models.templates import read_template

CALLS = 8
"""Most calls between two answers."""
RUN = "run"
"""The tool that judges a kernel: a call of it is an attempt."""
RESULT_CHARACTERS = 24_000

Work = Callable[[str], Awaitable[str]]
"""Judges or builds a kernel's text, and returns the result in words. Raises ArenaError if the harness fails."""

_INCLUDE = Path(sandbox.__file__).parent / "kit" / "include"
_HEADERS = ("px_cpu.h", "px.cuh")
PAGES = ("symm", "cpp", "cuda", *_HEADERS)


_Arguments = TypeVar("_Arguments", bound=msgspec.Struct)


class _KernelArguments(msgspec.Struct):
    source: str


class _PageArguments(msgspec.Struct):
    page: str


class KernelTools:
    """The tools of one agent, and how many calls are left until its next answer."""

    def __init__(self, version: str, run: Work, build: Work | None) -> None:
        """version: of the templates; build: None where nothing can be compiled without being judged."""
        self._version = version
        self._work: dict[str, Work] = ({"compile": build} if build is not None else {}) | {RUN: run}
        self.left = CALLS

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that are offered."""
        kernel = {"source": {"type": "string", "description": "The whole Python file."}}
        page = {"page": {"type": "string", "enum": list(PAGES)}}
        return (
            *(self._tool(name, kernel) for name in self._work),
            self._tool("kit_docs", page),
        )

    def _tool(self, name: str, properties: dict[str, Any]) -> Tool:
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        return Tool(name, read_template(self._version, f"tool_{name}"), schema)

    async def call(self, call: ToolCall) -> ToolResult:
        """Answers a call.

        Raises:
            ArenaError: the harness failed.
        """
        error = True
        if self.left <= 0:
            text = read_template(self._version, "no_calls")
        else:
            self.left -= 1
            try:
                text, error = await self._answer(call), False
            except _Unusable as unusable:
                text = f"{call.name or 'the call'}: {unusable}"
        text = printable(text)
        if len(text) > RESULT_CHARACTERS:
            text = text[:RESULT_CHARACTERS] + "\n[... the rest is left out ...]"
        return ToolResult(call.name, text, call.call_id, error)

    async def _answer(self, call: ToolCall) -> str:
        if call.name == "kit_docs":
            return self._page(_read(call, _PageArguments).page)
        if call.name not in self._work:
            known = ", ".join(tool.name for tool in self.tools)
            raise _Unusable(f"there is no such tool; choose from {known}")
        source = _read(call, _KernelArguments).source
        if source.lstrip().startswith("```"):
            source = kernel_source(source)
        if not source.strip():
            raise _Unusable("`source` is empty; it is the whole Python file")
        return await self._work[call.name](source)

    def _page(self, name: str) -> str:
        if name not in PAGES:
            raise _Unusable(f"there is no page {name[:60]!r}; choose from {', '.join(PAGES)}")
        if name in _HEADERS:
            return (_INCLUDE / name).read_text(encoding="utf-8")
        return read_template(self._version, f"kit_{name}")


class _Unusable(Exception):
    """The call cannot be done as it was written."""


def _read(call: ToolCall, wanted: type[_Arguments]) -> _Arguments:
    if len(call.arguments) >= ARGUMENT_CHARACTERS:
        raise _Unusable(f"its arguments are longer than {ARGUMENT_CHARACTERS} characters")
    try:
        return msgspec.json.decode(call.arguments, type=wanted)
    except (ValueError, RecursionError) as error:
        needed = ", ".join(wanted.__struct_fields__)
        raise _Unusable(f"its arguments are no JSON object with `{needed}`: {error}") from None
