"""The report of `generate` and `agent`, as JSON and as text."""

from pathlib import Path

import msgspec

from arena.cli.output import compact, other_sizes_lines, print_line
from arena.cli.players.writing_plan import Plan
from arena.cli.players.writing_progress import spent_text
from arena.models.budget import Spent
from arena.players.attempts import Attempt, best_of, counts, pass_at
from arena.players.judge_access import JudgeAccess
from arena.records.run_record import RunRecord, view
from arena.runs.judge import Judgement
from arena.runs.origin import Origin
from sandbox.protocol.verdict import ExitCode


class AttemptReport(msgspec.Struct, rename={"reason": "complaint"}, frozen=True, kw_only=True):
    """One answer of the model."""

    step: int
    outcome: str
    """ "kernel", "refusal", "unreadable", "empty", "prose", "truncated" or "budget"."""
    reason: str
    sha256: str | None
    continued: int
    spent: Spent
    report: RunRecord | None
    """As in `run --json`; null without a kernel, or if it was not run."""


class OriginReport(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel to improve, and the comparison of the best kernel with it."""

    kernel: str
    sha256: str
    report: RunRecord | None
    """The best kernel's report against this kernel, as in `run --against`; null without a correct kernel."""


class WritingReport(msgspec.Struct, frozen=True, kw_only=True):
    """The one JSON object of `generate --json` and `agent --json`."""

    trace_id: str
    problem: str
    id: int
    category: str
    model: str
    player: str
    prompt: dict[str, str | int]
    attempts: list[AttemptReport]
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
    origin: OriginReport | msgspec.UnsetType = msgspec.UNSET
    """Only with --from; else not in the JSON."""

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
        told = any(counts(attempt.outcome, attempt.report) for attempt in self.attempts)
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


def _origin(origin: Origin, compared: Judgement | None) -> OriginReport:
    report = compared.report if compared is not None else None
    return OriginReport(kernel=origin.name, sha256=origin.sha256, report=report)


def _attempt(attempt: Attempt) -> AttemptReport:
    kernel = attempt.answer.kernel if attempt.answer.outcome == "kernel" else None
    sha256 = kernel.sha256 if kernel is not None else None
    return view(AttemptReport, attempt, attempt.answer, sha256=sha256)


def print_writing(report: WritingReport) -> None:
    """Prints the report as text."""
    for attempt in report.attempts:
        what = compact(attempt.report) if attempt.report is not None else attempt.reason or "not run"
        mark = "*" if attempt.step == report.best else " "
        print_line(f"{mark} {attempt.step}  {what}")
        for line in other_sizes_lines(attempt.report) if attempt.report is not None else ():
            print_line(f"     {line}")
    if report.pass_at:
        k = str(len(report.pass_at))
        print_line(f"pass@1 {report.pass_at['1']:.2f}   pass@{k} {report.pass_at[k]:.2f}")
    if report.origin:
        told = compact(report.origin.report) if report.origin.report is not None else "no correct kernel to compare"
        print_line(f"against {report.origin.kernel}: {told}")
    print_line(f"{report.player}: {spent_text(report.spent)}; ended: {report.reason}")
    if report.kernel is not None:
        print_line(report.kernel)
