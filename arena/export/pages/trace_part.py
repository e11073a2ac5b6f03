"""A model's trace on a page: the prompt, then its steps with what it wrote, called and submitted."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from arena.export.pages.kernel_part import kernel_part, revision
from arena.export.pages.markup import Markup, element, folded, joined
from arena.export.pages.verdict_part import cost_words, verdict_part
from arena.models.conversation import Message
from arena.players import trace
from arena.records.report_text import brief_speed, verdict_span
from arena.workspace.kernels import Workspace
from sandbox.protocol.kernel_files import Kernel

_Event = trace.AnyTraceEvent
_SAID = (trace.Mused, trace.Wrote, trace.Called, trace.Returned, trace.Retried)


def trace_part(path: Path, workspace: Workspace) -> Markup:
    """Shows the prompt and the steps of a trace.

    Raises:
        OSError: the trace cannot be read.
    """
    events = list(trace.read_trace(path))
    asked = [event for event in events if isinstance(event, trace.Asked)]
    parts = [element("h2", "Prompt"), *(_prompt(asked[0]) if asked else [element("p", "It was asked nothing.")])]
    parts.append(element("h2", "Steps"))
    told: Sequence[Message] = asked[0].messages if asked else ()
    before: Kernel | None = None
    for step, group in itertools.groupby(events, lambda event: event.step):
        held = list(group)
        parts.append(element("h3", _heading(step, held)))
        for event in held:
            if isinstance(event, trace.Asked) and event is not asked[0]:
                parts += _messages(_new(event.messages, told))
                told = event.messages
        parts += _said(held)
        for event in held:
            if isinstance(event, trace.Answered):
                parts.append(_answer(event))
        kernel = _kernel(held, workspace)
        if kernel is not None:
            parts.append(kernel_part(kernel, before))
            before = kernel
        parts += [
            element("div", verdict_part(event.report), class_="card")
            for event in held
            if isinstance(event, trace.Judged)
        ]
        parts += [element("p", f"Ended: {event.reason}") for event in held if isinstance(event, trace.Ended)]
    return joined(*parts)


def _prompt(asked: trace.Asked) -> list[Markup]:
    tools = [element("p", f"Tools: {', '.join(asked.tools)}", class_="muted")] if asked.tools else []
    return [folded("System prompt", _words(asked.system)), *_messages(asked.messages), *tools]


def _messages(messages: Iterable[Message]) -> list[Markup]:
    """Shows messages to the model. The model's own messages are shown in their steps."""
    shown = []
    for message in messages:
        if message.role == "assistant":
            continue
        results = [joined(element("p", f"Result of {each.name}:"), _words(each.text)) for each in message.results]
        shown.append(folded("Message to the model", *([_words(message.content)] if message.content else []), *results))
    return shown


def _new(messages: Sequence[Message], told: Sequence[Message]) -> Sequence[Message]:
    """Returns the messages after those that are on the page already."""
    same = 0
    for new, old in zip(messages, told, strict=False):
        if new != old:
            break
        same += 1
    return messages[same:]


def _heading(step: int, events: Iterable[_Event]) -> str:
    judged = [event for event in events if isinstance(event, trace.Judged)]
    words = [f"{verdict_span(each.report.verdict)[1]} {brief_speed(each.report)}".rstrip() for each in judged]
    return " · ".join([f"Step {step}" if step else "Before the first step", *words])


def _said(events: Iterable[_Event]) -> list[Markup]:
    """Shows what the model thought, wrote and called, in order."""
    said = [event for event in events if isinstance(event, _SAID)]
    return [part for kind, group in itertools.groupby(said, type) for part in _texts(kind, list(group))]


def _texts(kind: type, events: list[_Event]) -> Iterable[Markup]:
    if kind in (trace.Mused, trace.Wrote):
        said = "".join(event.text for event in events if isinstance(event, trace.Mused | trace.Wrote))
        what = "Thought" if kind is trace.Mused else "Answer"
        yield folded(f"{what} · {len(said):,} characters", _words(said))
    for event in events:
        match event:
            case trace.Called():
                yield folded(f"Calls {event.tool}", *_arguments(event.arguments))
            case trace.Returned():
                yield folded(f"{event.tool} {'failed' if event.error else 'returned'}", _words(event.text))
            case trace.Retried():
                yield element("p", f"Request {event.attempt} failed: {event.reason}", class_="muted")


def _arguments(arguments: str) -> list[Markup]:
    """Shows the values of an object one by one, because JSON escapes line breaks."""
    try:
        values = msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        return [_words(arguments)]
    return [
        joined(
            element("p", f"{key}:"), _words(value if isinstance(value, str) else msgspec.json.encode(value).decode())
        )
        for key, value in values.items()
    ]


def _answer(event: trace.Answered) -> Markup:
    reason = f": {event.reason}" if event.reason else ""
    cost = cost_words(event.spent)
    return element("p", f"Outcome: {event.outcome}{reason}{' · ' + cost if cost else ''}", class_="muted")


def _kernel(events: Sequence[_Event], workspace: Workspace) -> Kernel | None:
    """Returns the kernel that was judged, with all its files; else the one that was submitted."""
    judged = next((event.report.sha256 for event in events if isinstance(event, trace.Judged)), "")
    answers = (event for event in events if isinstance(event, trace.Answered) and event.source)
    written = next((Kernel(event.source, event.files) for event in answers), None)
    return revision(workspace, judged) or written


def _words(text: str) -> Markup:
    return element("pre", text, class_="words")
