"""The trace of a model or an agent program: a header, then events. Screens show it, and replays read it from disk.

It never contains a key.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from arena.models.budget import Spent
from arena.models.conversation import (
    AnyPiece,
    CallPart,
    Conversation,
    Draft,
    Finish,
    Message,
    Retry,
    Text,
    Thought,
    Usage,
)
from arena.paths import Paths, make_folder
from arena.records.json_lines import Journal, decoder, read_first, read_later
from arena.records.run_record import RunRecord, view
from sandbox.protocol.events import Setting
from sandbox.protocol.kernel_files import Files, Kernel

VERSION = 1
BATCH_S = 0.1
"""Seconds of text that one event collects, so that a fast model does not write a line per token."""


class TraceHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="trace"):
    """First line of a trace: the model, the task and the limits."""

    trace_id: str
    created: float
    """Seconds since the epoch."""
    problem_id: int
    slug: str
    category: str
    player: str
    provider: str
    model: str
    prompt_version: str
    prompt_sha256: str
    shots: int
    setting: Setting
    steps: int
    budget_usd: float | None = None
    origin: str = ""
    """SHA-256 of the kernel that the player started from; empty for none."""
    origin_name: str = ""
    version: int = VERSION


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all events. `at`: seconds since the trace began. `step`: 1, 2, 3..."""

    at: float = 0.0
    step: int = 0


class Asked(TraceEvent, tag="asked", frozen=True, kw_only=True):
    """A step begins: the input of the model."""

    system: str
    messages: list[Message]
    tools: list[str] = []
    """Names of the tools that it may call."""


class Wrote(TraceEvent, tag="wrote", frozen=True, kw_only=True):
    """More text of the answer."""

    text: str


class Mused(TraceEvent, tag="thought", frozen=True, kw_only=True):
    """More of the model's reasoning, if its provider shows it."""

    text: str


class Counted(TraceEvent, tag="counted", frozen=True, kw_only=True):
    """Tokens and dollars that all steps have used so far."""

    spent: Spent


class Retried(TraceEvent, tag="retried", frozen=True, kw_only=True):
    """A request failed and will be repeated after `wait_s` seconds."""

    attempt: int
    wait_s: float
    reason: str


class Drafted(TraceEvent, tag="drafted", frozen=True, kw_only=True):
    """More text of a kernel in a tool call that is not complete yet."""

    text: str


class Called(TraceEvent, tag="called", frozen=True, kw_only=True):
    """The player calls a tool."""

    tool: str
    arguments: str
    """The arguments as the player wrote them."""


class Returned(TraceEvent, tag="returned", frozen=True, kw_only=True):
    """The result of the last tool call."""

    tool: str
    text: str
    error: bool


class Answered(TraceEvent, tag="answered", frozen=True, kw_only=True):
    """An answer is complete, or the player passed a kernel to the tool `run`."""

    outcome: str
    """As `ModelAnswer.outcome`."""
    reason: str
    source: str
    files: Files = {}
    spent: Spent
    """Amount spent on this answer."""

    @property
    def kernel(self) -> Kernel:
        return Kernel(self.source, self.files)


class Judged(TraceEvent, tag="judged", frozen=True, kw_only=True):
    """The step's kernel has a verdict. The journal of the run has the details."""

    report: RunRecord
    printed: str
    gain: bool
    """Whether the kernel is better than all earlier ones."""


class Ended(TraceEvent, tag="ended", frozen=True, kw_only=True):
    """Last event."""

    reason: str
    """ "steps", "budget", "no gain", "refused", "harness", "cancelled", or "failed: ...". Also "done", "time" or
    "limit of memory: ..." for a program."""
    best_step: int | None
    spent: Spent


AnyTraceEvent = Asked | Wrote | Mused | Counted | Retried | Drafted | Called | Returned | Answered | Judged | Ended
Listener = Callable[[AnyTraceEvent], None]

read_trace_header: Callable[[Path], TraceHeader] = partial(read_first, decode=decoder(TraceHeader))
read_trace: Callable[[Path], Iterator[AnyTraceEvent]] = partial(read_later, decode=decoder(AnyTraceEvent))
"""`read_first` and `read_later` of a trace."""


class TraceRecorder:
    """Turns a player's output into trace events for the file and the listeners."""

    def __init__(
        self, header: TraceHeader, paths: Paths, on_trouble: Callable[[OSError], None], listeners: list[Listener]
    ) -> None:
        """
        Raises:
            FolderUnwritable: the folder of the traces cannot be created.
        """
        make_folder(paths.traces)
        self.path = paths.traces / f"{header.trace_id}.jsonl"
        self._journal = Journal(self.path, header, on_trouble)
        self._listeners = listeners
        self._started = self._written_at = time.monotonic()
        self._unwritten: dict[type[Mused | Wrote | Drafted], list[str]] = {Mused: [], Wrote: [], Drafted: []}
        self._drafts: dict[int, Draft] = {}
        self.step = 0

    def ask(self, step: int, conversation: Conversation) -> None:
        """Records the start of a step and the model's input."""
        self.step = step
        messages, tools = list(conversation.messages), [tool.name for tool in conversation.tools]
        self._emit(Asked(system=conversation.system, messages=messages, tools=tools))

    def piece(self, piece: AnyPiece, spent: Spent) -> None:
        """Records a piece of the player's output."""
        match piece:
            case Text():
                self._unwritten[Wrote].append(piece.text)
            case Thought():
                self._unwritten[Mused].append(piece.text)
            case CallPart():
                if piece.number not in self._drafts:
                    self._drafts[piece.number] = Draft()
                    self._flush()
                if text := self._drafts[piece.number].feed(piece.arguments):
                    self._unwritten[Drafted].append(text)
            case Retry():
                self._drafts.clear()
                self.emit(view(Retried, piece))
            case Usage():
                self.emit(Counted(spent=spent))
            case Finish():
                self._drafts.clear()
                self._flush()
        if time.monotonic() - self._written_at >= BATCH_S:
            self._flush()

    def ended(self, reason: str, best_step: int | None, spent: Spent) -> None:
        """Records the last event and closes the file."""
        self.emit(Ended(reason=reason, best_step=best_step, spent=spent))
        self._journal.close()

    def emit(self, event: AnyTraceEvent) -> None:
        """Emits the buffered text, then an event."""
        self._flush()
        self._emit(event)

    def _flush(self) -> None:
        self._written_at = time.monotonic()
        for kind, texts in self._unwritten.items():
            if texts:
                self._emit(kind(text="".join(texts)))
                texts.clear()

    def _emit(self, event: AnyTraceEvent) -> None:
        # The time is set only here, so that the times in the file ascend.
        at = round(time.monotonic() - self._started, 4)
        event = msgspec.structs.replace(event, at=at, step=self.step)
        self._journal.append(event)
        for listener in self._listeners:
            listener(event)
