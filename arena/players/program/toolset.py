"""The tools of a tool server: named tools that take arguments and answer with a text. Every text is bounded and printable."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from arena.foreign_text import printable
from arena.models.conversation import Tool, ToolCall, ToolResult
from arena.players.tools import RESULT_CHARACTERS, KernelTools, Work
from arena.runs.results import one_line

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}

Arguments = TypeVar("Arguments", bound=msgspec.Struct)


class ToolSet(Protocol):
    """Implemented for a person's own agent (`arena_tools.py`) and for a player of a sweep (`task_tools.py`)."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools by name, each with a JSON schema of its arguments."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Answers a call. An error is a result, too."""


class Misused(Exception):
    """The call cannot be done as it was made."""


def tool(name: str, description: str, required: Mapping[str, Any], optional: Mapping[str, Any]) -> Tool:
    """A tool whose arguments have these schemas, and no others."""
    schema = {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }
    return Tool(name, " ".join(description.split()), schema)


def arguments_of(arguments: Mapping[str, Any], wanted: type[Arguments]) -> Arguments:
    """The arguments as a struct.

    Raises:
        Misused: one is missing, unknown or of the wrong kind.
    """
    unknown = [name for name in arguments if name not in wanted.__struct_fields__]
    if unknown:
        raise Misused(f"there is no argument {one_line(unknown[0])[:60]!r}")
    try:
        return msgspec.convert(dict(arguments), wanted)
    except msgspec.ValidationError as error:
        raise Misused(str(error)) from None


async def work_on(version: str, name: str, source: str, run: Work, build: Work) -> ToolResult:
    """One call of `compile` or `run`, as for a model: fences around a kernel are taken off, the text is bounded."""
    call = ToolCall(name, msgspec.json.encode({"source": source}).decode())
    return await KernelTools(version, run, build).call(call)


async def page(version: str, name: str) -> ToolResult:
    """One page of `kit_docs`."""
    call = ToolCall("kit_docs", msgspec.json.encode({"page": name}).decode())
    return await KernelTools(version, _nothing, None).call(call)


async def _nothing(source: str) -> str:
    return ""


def result(name: str, text: str, error: bool = False) -> ToolResult:
    """A tool's text, made printable and cut off where it is too long."""
    text = printable(text)
    if len(text) > RESULT_CHARACTERS:
        text = text[:RESULT_CHARACTERS] + "\n[... the rest is left out ...]"
    return ToolResult(name, text, error=error)
