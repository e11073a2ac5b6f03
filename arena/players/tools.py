"""Tools that models and programs may call by name, with JSON arguments. The result is a bounded, printable text.

A wrong call also gets a text as its result. Only a failed harness raises.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

import sandbox
from arena.models.answer import kernel_of
from arena.models.conversation import ARGUMENT_CHARACTERS, Tool, ToolCall, ToolResult, read_template
from arena.players.feedback import fenced
from arena.setting_choice import Choice
from arena.words.untrusted_text import one_line, printable
from arena.workspace.named_kernels import BASELINE, starter, template_names
from problems.specification import Problem
from sandbox.machine.backends import backend_names
from sandbox.protocol.kernel_files import Kernel

CALLS = 8
"""Maximum number of calls between two answers of a model."""
RUN = "run"
"""Name of the tool that judges a kernel. Each call is an attempt."""
RESULT_CHARACTERS = 24_000
NO_ARGUMENTS = ("", "{}", "null")
"""Arguments of a call whose provider lost them: every tool of a model needs some."""

_INCLUDE = Path(sandbox.__file__).parent / "kit" / "include"
_HEADERS = ("px_cpu.h", "px.cuh")
PAGES = ("symm", "cpp", "cuda", *backend_names(), *_HEADERS)

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
KERNEL_WORDS = (
    "The whole Python file, with solution(...). Several files: a Markdown fence for each, with its path behind the language "
    "(```python kernel.py, ```cuda ops/sum.cu); kernel.py has solution(...)."
)


class ToolSet(Protocol):
    """The tools of a tool server, for a user's own agent or a program's task."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools by name, each with a JSON schema of its arguments."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Runs a call. An error is returned as a result."""


class Misused(Exception):
    """The call or its arguments are invalid."""


def tool(name: str, description: str, required: Mapping[str, Any], optional: Mapping[str, Any]) -> Tool:
    """Returns a tool. Its arguments have these JSON schemas; other arguments are invalid."""
    schema = {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }
    return Tool(name, " ".join(description.split()), schema)


class ToolArguments(Choice, frozen=True):
    """The arguments of all tools together. The schema of a tool says which of them it takes."""

    problem: str | int = ""
    category: str = ""
    template: str = BASELINE
    page: str = ""
    source: str = ""


def arguments_of(name: str, arguments: Mapping[str, Any], tools: Sequence[Tool]) -> ToolArguments:
    """Returns the arguments of a call of one of these tools.

    Raises:
        Misused: there is no such tool, or an argument is missing, unknown or of the wrong type.
    """
    schema = find_tool(name, tools).parameters
    if unknown := next((each for each in arguments if each not in schema["properties"]), ""):
        raise Misused(f"there is no argument {one_line(unknown)[:60]!r}; choose from {', '.join(schema['properties'])}")
    if missing := [each for each in schema["required"] if each not in arguments]:
        wanted = schema["properties"][missing[0]]
        words = f"choose from {', '.join(wanted['enum'])}" if "enum" in wanted else wanted["description"]
        raise Misused(f"`{missing[0]}` is missing: {words}")
    try:
        return msgspec.convert(dict(arguments), ToolArguments)
    except msgspec.ValidationError as error:
        raise Misused(str(error)) from None


def find_tool(name: str, tools: Sequence[Tool]) -> Tool:
    """Returns the tool of this name. Raises Misused if there is none."""
    found = next((each for each in tools if each.name == name), None)
    if found is None:
        raise Misused(f"there is no such tool; choose from {', '.join(each.name for each in tools)}")
    return found


def kernel_tools() -> tuple[Tool, Tool, Tool]:
    """Returns the tools that every player has: compile a kernel, run it, read a page about the kit."""
    kernel = {"source": TEXT | {"description": KERNEL_WORDS}}
    of: dict[str, dict[str, Any]] = {"compile": kernel, RUN: kernel, "kit_docs": {"page": TEXT | {"enum": list(PAGES)}}}
    compiles, runs, reads = (tool(name, read_template(f"tool_{name}"), needs, {}) for name, needs in of.items())
    return compiles, runs, reads


def result(name: str, text: str, error: bool = False, call_id: str = "") -> ToolResult:
    """Returns a tool's result. Its text is made printable, and is truncated if it is too long."""
    text = printable(text)
    if len(text) > RESULT_CHARACTERS:
        text = text[:RESULT_CHARACTERS] + "\n[... the rest is left out ...]"
    return ToolResult(name, text, call_id, error)


def kernel_in(source: str) -> Kernel:
    """Returns the kernel in a tool's argument: the text without its fences, or the files that the fences name.

    Raises:
        Misused: there is no kernel, or it is too long.
    """
    if len(source) >= ARGUMENT_CHARACTERS:
        raise Misused(f"its arguments are longer than {ARGUMENT_CHARACTERS} characters")
    kernel = kernel_of(source) if source.lstrip().startswith("```") else Kernel(source)
    if not kernel.source.strip():
        raise Misused("`source` is empty; it is the whole Python file")
    return kernel


def starter_text(problem: Problem, template: str) -> str:
    """Returns a starter kernel in a fence. Raises Misused if there is no such template."""
    if template not in template_names():
        raise Misused(f"there is no template {template[:60]!r}; choose from {', '.join(template_names())}")
    return fenced(starter(problem, template), "python")


def page_text(name: str) -> str:
    """Returns one page of `kit_docs`.

    Raises:
        Misused: there is no such page.
    """
    if name not in PAGES:
        raise Misused(f"there is no page {name[:60]!r}; choose from {', '.join(PAGES)}")
    if name in _HEADERS:
        return (_INCLUDE / name).read_text(encoding="utf-8")
    return read_template(f"kit_{name}")


def read_call(call: ToolCall, tools: Sequence[Tool]) -> ToolArguments:
    """Returns the arguments of a model's call of one of these tools. Arguments that no tool has are ignored.

    Raises:
        Misused: there is no such tool, or its arguments are too long or no object of the right types.
    """
    needed = ", ".join(find_tool(call.name, tools).parameters["required"])
    if len(call.arguments) >= ARGUMENT_CHARACTERS:
        raise Misused(f"its arguments are longer than {ARGUMENT_CHARACTERS} characters")
    if call.arguments.strip() in NO_ARGUMENTS:
        raise Misused(f"no arguments arrived; it needs `{needed}`")
    try:
        return msgspec.json.decode(call.arguments, type=ToolArguments)
    except (ValueError, RecursionError) as error:
        raise Misused(f"its arguments are no JSON object with `{needed}`: {error}") from None
