"""A model's work as text: progress on stderr, the trace for `pkb-arena replay`, the report of `generate` and `agent`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from arena.cli.output import LiveLine, compact, print_json, print_line, say
from arena.cli.writing_plan import Plan
from arena.models.budget import Spent
from arena.players import trace
from arena.players.attempts import Attempt, best_of, counts, pass_at
from arena.players.judge_access import JudgeAccess
from arena.players.writing_state import JUDGING, WritingState
from arena.records.report_text import ELSEWHERE, facts
from arena.records.run_record import fields_of, view
from arena.runs.judge import Judgement
from arena.runs.origin import Origin
from arena.workspace.kernel_folder import shown_text
from sandbox.protocol.verdict import ExitCode


def spent_text(spent: Spent) -> str:
    """Formats tokens and cost: "12.3k tokens, $0.2100". A leading tilde: part of it is estimated."""
    tokens = f"{spent.tokens / 1000:.1f}k" if spent.tokens >= 1000 else str(spent.tokens)
    money = f", ${spent.usd:.4f}" if spent.usd else ""
    return f"{'~' if spent.estimated else ''}{tokens} tokens{money}"


class WritingProgress:
    """Shows the events of a trace: a line per answer and verdict, and on a terminal a line that is redrawn."""

    def __init__(self, player: str) -> None:
        self._player = player
        self._state = WritingState()
        self._shown = LiveLine()
        self.clear = self._shown.clear

    def event(self, event: trace.AnyTraceEvent) -> None:
        """Updates the display after an event."""
        state = self._state
        state.apply(event)
        if isinstance(event, trace.Retried | trace.Called | trace.Answered | trace.Judged):
            self.clear()
            say(f"{self._player} {_line(event)}")
        if state.ended is None and state.doing != JUDGING:  # the run's own line shows how it is judged
            seconds = f"{state.at - state.since:.0f} s"
            self._shown.draw(
                f"{self._player} {state.writing}: {state.doing}  ~{state.tokens_written} tokens  {seconds}"
            )


def tell_trace(path: Path, header: trace.TraceHeader, as_json: bool, source: bool) -> None:
    """Prints a trace as text or as JSON events, or only the best kernel's source."""
    events = list(trace.read_trace(path))
    if source:
        print_line(_best_source(events).rstrip("\n"))
        return
    if as_json:
        print_json(header)
    else:
        print_line(f"{header.player} ({header.model}) on {header.problem_id} {header.slug}")
    for event in events:
        if as_json:
            print_json(event)
        elif line := _line(event):
            print_line(f"{event.at:8.1f} s  {line}")


def _best_source(events: list[trace.AnyTraceEvent]) -> str:
    answers = [event for event in events if isinstance(event, trace.Answered) and event.source]
    sources = {event.step: shown_text(event.kernel) for event in answers}
    best = next((event.best_step for event in events if isinstance(event, trace.Ended)), None)
    return sources.get(best or 0) or next(iter(sources.values()), "")


def _line(event: trace.AnyTraceEvent) -> str:
    match event:
        case trace.Asked():
            return f"{event.step}: asked, {sum(len(turn.content) for turn in event.messages)} characters"
        case trace.Retried():
            return f"{event.step}: {event.reason}; again in {event.wait_s:.1f} s"
        case trace.Called():
            return f"{event.step}: calls {event.tool}, {len(event.arguments)} characters"
        case trace.Returned():
            first = event.text.strip().partition("\n")[0]
            return f"{event.step}: {'✗ ' if event.error else ''}{event.tool} says: {first[:120]}"
        case trace.Answered():
            words = event.reason or f"a kernel of {len(event.source.splitlines())} lines"
            return f"{event.step}: {words}, {spent_text(event.spent)}"
        case trace.Judged():
            return f"{event.step}: {compact(event.report)}{'  (gain)' if event.gain else ''}"
        case trace.Ended():
            return f"ended: {event.reason}; best {event.best_step or 'none'}; {spent_text(event.spent)}"
        case _:
            return ""


class WritingReport(msgspec.Struct, frozen=True, kw_only=True):
    """The one JSON object of `generate --json` and `agent --json`."""

    trace_id: str
    problem: str
    id: int
    category: str
    model: str
    player: str
    prompt: dict[str, str | int]
    attempts: list[dict[str, Any]]
    """The answers. `outcome`: as `ModelAnswer.outcome`; `report`: as in `run --json`, null if no kernel was run."""
    best: int | None
    """Step of the best attempt that was run."""
    passed: bool
    kernel: str | None
    """The file with the best kernel."""
    reason: str
    """Why it ended: "steps", "budget", "no gain", "refused", "harness", "failed: ..."."""
    spent: Spent
    pass_at: dict[str, float] | None
    """k -> probability that at least one of k independent attempts passes.

    Computed from the attempts that `counts` accepts. Null for an agent and if nothing was run.
    """
    faster_at: dict[str, float] | None
    """As `pass_at`, for attempts that pass and are faster than the baseline."""
    origin: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """The kernel to improve, and the best kernel's report against it, as in `run --against`, null without a correct kernel.

    Only with --from; else not in the JSON.
    """

    @property
    def provider_failed(self) -> bool:
        """Whether an error of the provider ended the attempts, possibly after a kernel was judged."""
        return self.reason.startswith("failed")

    @property
    def exit_code(self) -> ExitCode:
        """3 if the provider failed, or if no kernel passed and no attempt counts as evidence about the model."""
        if self.provider_failed:
            return ExitCode.ENVIRONMENT
        if self.passed:
            return ExitCode.PASS
        told = any(counts(attempt["outcome"], attempt["report"]) for attempt in self.attempts)
        return ExitCode.KERNEL_FAILED if told else ExitCode.ENVIRONMENT


def report_of(plan: Plan, access: JudgeAccess, path: Path | None, compared: Judgement | None) -> WritingReport:
    """Returns the report. path: file of the best kernel; compared: that kernel against the one to improve."""
    header, ended, attempts = access.header, access.ended, access.attempts
    assert header is not None
    assert ended is not None
    best = best_of(attempts)
    count = sum(counts(attempt.answer.outcome, attempt.report) for attempt in attempts)
    sampled = range(1, count + 1) if plan.run and not plan.feedback else None
    passed = sum(attempt.passed for attempt in attempts)
    faster = sum(attempt.faster for attempt in attempts)
    return view(
        WritingReport, header, ended,
        problem=header.slug,
        id=header.problem_id,
        prompt={"version": header.prompt_version, "shots": header.shots, "sha256": header.prompt_sha256},
        attempts=[_attempt(attempt) for attempt in attempts],
        best=best.step if best is not None else None,
        passed=best is not None and best.passed,
        kernel=str(path) if path is not None else None,
        pass_at={str(k): pass_at(k, count, passed) for k in sampled} if sampled is not None else None,
        faster_at={str(k): pass_at(k, count, faster) for k in sampled} if sampled is not None else None,
        origin=_origin(plan.origin, compared) if plan.origin is not None else msgspec.UNSET,
    )  # fmt: skip


def _origin(origin: Origin, compared: Judgement | None) -> dict[str, Any]:
    report = compared.report if compared is not None else None
    return {"kernel": origin.name, "sha256": origin.sha256, "report": report}


def _attempt(attempt: Attempt) -> dict[str, Any]:
    answer = attempt.answer
    sha256 = answer.kernel.sha256 if answer.outcome == "kernel" else None
    told = fields_of(answer, "outcome continued spent") | {"complaint": answer.reason, "sha256": sha256}
    return {"step": attempt.step, **told, "report": attempt.report}


def writing_lines(report: WritingReport) -> Iterator[str]:
    """Yields the report as lines of text."""
    for attempt in report.attempts:
        found = attempt["report"]
        what = compact(found) if found is not None else attempt["complaint"] or "not run"
        yield f"{'*' if attempt['step'] == report.best else ' '} {attempt['step']}  {what}"
        told = facts(found) if found is not None else []
        yield from (f"     {fact.name}: {fact.text}" for fact in told if fact.kind == ELSEWHERE)
    if report.pass_at:
        k = str(len(report.pass_at))
        yield f"pass@1 {report.pass_at['1']:.2f}   pass@{k} {report.pass_at[k]:.2f}"
    if report.origin:
        against = report.origin["report"]
        compared = compact(against) if against is not None else "no correct kernel to compare"
        yield f"against {report.origin['kernel']}: {compared}"
    yield f"{report.player}: {spent_text(report.spent)}; ended: {report.reason}"
    if report.kernel is not None:
        yield report.kernel
