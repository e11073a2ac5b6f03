"""The texts of the model screen: head line, kernels, current step, verdicts."""

import msgspec
from textual.content import Content

from arena.models.budget import Spent
from arena.models.conversation import Message
from arena.players.attempts import KernelState, ranked_kernels
from arena.players.writing_state import JUDGING, PREPARING, THINKING, WAITING, WRITING
from arena.records.run_record import RunRecord
from arena.words.headline import headline_so_far
from arena.words.untrusted_text import printable
from sandbox.protocol.verdict import Verdict
from screens import figures
from screens.model.model_session import ModelSession

_REASONS = {
    "steps": "all answers received",
    "budget": "limit reached",
    "no gain": "the last kernels were not measurably faster",
    "refused": "the model declined twice",
    "harness": "the judge failed twice",
    "cancelled": "stopped",
}
_UNJUDGED = "stopped before its verdict"
_DOING = {PREPARING: "starting", WAITING: "waiting for the model", THINKING: "thinks", WRITING: "writes"}


def title(session: ModelSession) -> Content:
    """The model, its problem and its setting."""
    return Content.assemble(
        (f"{printable(str(session.plan.player.name))}  ", "$accent bold"),
        (f"{session.problem.id} · {session.problem.title}", "$foreground bold"),
        (f"   {figures.setting_words(session.setting)}", "$muted"),
    )


def best(session: ModelSession) -> Content:
    """ "★ ▲ 1.31× end-to-end · kernel 3"."""
    found = session.state.best
    if found is None or found.report is None:
        return Content.styled("no correct kernel yet", "$muted")
    if found.report.verdict is not Verdict.PASS:
        return Content.styled(f"no correct kernel yet · nearest: kernel {found.number}", "$muted")
    speed = next(iter(ranked_kernels(session.state.kernels)), None)  # all measurements of a kernel are pooled
    if speed is None:
        part = (figures.verdict_words(found.report.verdict), "$foreground bold")
    else:
        part = figures.measured_part(speed.speedup, speed.outcome, speed.clock, "bold")
    return Content.assemble(("★ " * (speed is not None), "$muted"), part, (f" · kernel {found.number}", "$muted"))


def spent(used: Spent) -> str:
    """ "14.2 ktok · $0.21"; with tildes if part of it is estimated."""
    about = "~" if used.estimated else ""
    money = f" · {about}${used.usd:.2f}" if used.usd else ""
    return f"{about}{figures.amount(used.tokens, 'tok')}{money}"


def kernel_line(session: ModelSession, kernel: KernelState) -> Content:
    """ "2  ✓ PASS  ▲ 1.05× [1.02, 1.08] end-to-end"; the best one that was timed has a star."""
    best = session.state.best
    right = best is kernel and bool(ranked_kernels(session.state.kernels))
    number = (f"{'★' if right else ' '}{kernel.number:>3}  ", "$foreground" if right else "$muted")
    report = kernel.report
    if report is None and not kernel.reason:
        if session.over:
            return Content.assemble(number, (f"– {_UNJUDGED}", "$muted"))
        return Content.assemble(number, (f"▸ {_judging(session)}", "$accent"))
    if report is None:
        return Content.assemble(number, (printable(kernel.reason), "$warning"))
    speed = f"  {_speedup(report)}" if report.verdict is Verdict.PASS else ""
    shown = (speed, f"${figures.outcome_style(report.outcome)}")
    return Content.assemble(number, figures.verdict_part(report.verdict), shown, _elsewhere(report))


def _elsewhere(report: RunRecord) -> tuple[str, str]:
    """ "  sizes: some": the result at other sizes; empty if it is not known."""
    if report.one_size_only:
        return "  one size only", "$error"
    held = report.holds_at_other_sizes or ""
    return (f"  sizes: {held}", f"${figures.HELD[held]}") if held else ("", "$muted")


def live_line(session: ModelSession) -> Content:
    """The row of the current step."""
    return Content.assemble((f" {session.state.writing:>3}  ", "$muted"), (f"▸ {_doing(session)}", "$accent"))


def phase_line(session: ModelSession) -> Content:
    """The current step and its duration, or how the work ended; and what was spent."""
    state = session.state
    used = spent(state.spent) if state.spent.tokens else "no tokens yet"
    limit = f" of {session.plan.limit}" if session.plan.limit else ""
    costs = Content.styled(f"{used}{limit}   ", "$muted")
    if session.over:
        return Content.assemble(_ending(session), "   ", costs)
    if session.comparing:
        return Content.assemble(costs, (f"▸ {_origin_name(session)}: {_judging(session)}", "$accent bold"))
    seconds = f"{session.now - state.since:.0f} s"
    tokens = f"   ~{figures.amount(state.tokens_written, 'tok')}" if state.tokens_written else ""
    trouble = (f"   ✗ {printable(state.trouble)}", "$warning") if state.trouble else ("", "$muted")
    doing = f"▸ kernel {state.writing - (state.doing == JUDGING)}: {_doing(session)}"
    return Content.assemble(costs, (doing, "$accent bold"), (f"   {seconds}{tokens}", "$foreground"), trouble)


def _doing(session: ModelSession) -> str:
    doing = session.state.doing
    return _judging(session) if doing == JUDGING else _DOING.get(doing, printable(doing))


def _judging(session: ModelSession) -> str:
    run = session.run
    if session.elsewhere:
        return session.elsewhere
    words = f"judging: {run.phase}" if run.phase else "judging"
    if run.running and run.waiting is not None:
        words = "waiting: another run is timing"
    if run.running and run.samples:
        told = headline_so_far(run.samples[-1])
        words += f"  {figures.speedup_words(told.speedup, told.outcome)} so far"
    return words


def _ending(session: ModelSession) -> Content:
    ended = session.state.ended
    if session.failed:
        return Content.styled(f"✗ {printable(session.failed)}", "$error")
    reason = ended.reason if ended is not None else "cancelled"
    count = len(session.state.kernels)
    answers = f"{count} answer{'s' if count != 1 else ''}"
    return Content.assemble(
        ("ended  ", "$foreground bold"),
        *_against(session),  # first: a narrow screen cuts the end
        (f"{_REASONS.get(reason, printable(reason))} · {answers}", "$foreground"),
    )


def _against(session: ModelSession) -> list[tuple[str, str]]:
    """The result of the best kernel against the one that it started from; empty if there was none."""
    if session.plan.origin is None:
        return []
    report = session.compared
    if report is None:
        passed = any(each.report is not None and each.report.passed for each in session.state.kernels)
        words = "not compared" if passed else "no correct kernel to compare"
        return [(f"{_origin_name(session)}: {words}   ", "$muted")]
    told = _speedup(report) or figures.verdict_words(report.verdict)
    style = f"${figures.outcome_style(report.outcome)} bold"
    return [(f"{_origin_name(session)}: ", "$foreground"), (f"{told}   ", style)]


def _origin_name(session: ModelSession) -> str:
    assert session.plan.origin is not None
    return f"against {printable(session.plan.origin.name)}"


def verdict_page(kernel: KernelState, over: bool) -> Content:
    """The page of the verdict pane: all facts about a kernel. over: the work has ended."""
    report = kernel.report
    used = Content.styled(f"used  {spent(kernel.spent)}", "$muted")
    if report is None:
        judging = f"{_UNJUDGED.capitalize()}." if over else "Judging."
        words = f"no kernel: {kernel.reason}" if kernel.reason else judging
        return Content("\n").join([Content(printable(words)), Content(""), used])
    lines = [Content.styled(*figures.verdict_part(report.verdict, "bold"))]
    if report.told:
        lines += [Content.styled(report.told, f"${figures.outcome_style(report.outcome)}")]
    elif report.verdict is Verdict.PASS:
        lines += [Content(_speedup(report))]
    else:
        lines += [Content(printable(report.detail))]
    if not isinstance(report.other_sizes, msgspec.UnsetType):
        lines += [
            Content(""),
            Content.styled("other sizes", "$muted"),
            *(
                Content.assemble(figures.other_size_result(each), figures.size_words(each))
                for each in report.other_sizes
            ),
        ]
    if report.failure is not None and report.failure.text:
        lines += [Content(""), Content(printable(report.failure.text).strip("\n"))]
    if kernel.printed:
        lines += [Content(""), Content.styled("output", "$muted"), Content(printable(kernel.printed))]
    return Content("\n").join([*lines, Content(""), used])


def _speedup(report: RunRecord) -> str:
    return figures.measured_words(report.interval, report.outcome, report.clock) if report.interval else report.outcome


def conversation(system: str, messages: tuple[Message, ...]) -> str:
    """What the model was given, as one text."""
    turns = [f"<<< system >>>\n\n{system}"]
    for message in messages:
        said = [message.content] if message.content else []
        said += [f"calls {call.name}\n{call.arguments}" for call in message.calls]
        said += [f"{result.name} says\n{result.text}" for result in message.results]
        turns.append(f"<<< {message.role} >>>\n\n" + "\n\n".join(said))
    return printable("\n\n".join(turns))
