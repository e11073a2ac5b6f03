"""The texts of the duel screen: head line, status of a player, list of kernels."""

from rich.cells import cell_len
from textual.content import Content

from arena.duel.card import final_result, final_words, money_words, shortened
from arena.duel.events import SIDES, WAITING, SideName, short_name
from arena.duel.state import AttemptState, DuelState, SideState
from arena.players.program.watch import LIMIT
from arena.words.headline import WHERE
from arena.words.untrusted_text import printable
from sandbox.protocol.events import Interval
from sandbox.protocol.verdict import Verdict
from screens import figures

MOST_IN_SCORE = 18
"""Most characters of a player's name above the panes, where both names share a row with the title."""
MOST_REASON = 240
"""Most characters of the reason why a player stopped."""
COLOURS: dict[SideName, str] = {"left": "$accent", "right": "$warning"}


def title(state: DuelState, width: int, kind: str = "duel") -> Content:
    """The problem of the duel, its limits, and as much of its setting as fits so many columns. kind: the first word."""
    header = state.header
    rules = f"{header.minutes:g} min" if header.minutes is not None else "no clock"
    rules += f" · ${header.budget_usd:g} each" if header.budget_usd is not None else ""
    room, parts = width - len(f"{kind}     "), [rules, *figures.setting_words(header.setting).split(" · ")]
    name = figures.cut(f"{header.problem_id} · {header.title}", room - len(rules))
    while len(parts) > 1 and cell_len(name + " · ".join(parts)) > room:
        parts.pop()
    return Content.assemble((f"{kind}  ", "$muted"), (name, "$foreground bold"), (f"   {' · '.join(parts)}", "$muted"))


def score(state: DuelState, brief: bool = False) -> Content:
    """ "you ▲ 1.31× end-to-end   vs   house ▲ 1.18× end-to-end"; a star marks the winner. brief: no clocks."""
    parts: list[Content] = []
    for name in SIDES:
        best = state.side(name).best
        words = _speedup(best, brief) if best is not None else ""
        if not brief and len(same := state.side(name).pooled) > 1:
            words += f" (kernels {', '.join(map(str, same))}: one text)"
        won = state.ended is not None and state.ended.winner == name
        crown = "★ " if won else ""
        player = state.header.player(name).name
        parts.append(
            Content.assemble(
                (f"{crown}{printable(short_name(player, MOST_IN_SCORE))} ", f"{COLOURS[name]} bold"), words or "–"
            )
        )
    return Content.assemble(parts[0], ("   vs   ", "$muted"), parts[1])


def stage_line(state: DuelState, now: float) -> Content:
    """The clock, or the state of the duel in the final and after the end."""
    match state.stage:
        case "ended":
            played = f"{figures.clock(state.clock(now))} played"
            counts = [
                f"{printable(state.header.player(name).short)} {len(state.side(name).attempts)}" for name in SIDES
            ]
            return Content.assemble((played, "$foreground bold"), (f"   kernels: {' · '.join(counts)}", "$muted"))
        case "abandoned":
            return Content.styled(f"abandoned: {printable(state.abandoned)}", "$warning")
        case "final":
            sample = state.final_samples[-1] if state.final_samples else None
            waited = f"waiting for the first round, {figures.clock(now - state.final.at)}" if state.final else ""
            count = f"round {sample.round}/{sample.rounds}" if sample else waited
            names = f"{state.header.left.short} over {state.header.right.short}"
            figure = f"   {printable(names)} {_on_clock(sample.speedup, sample.clock)}" if sample else ""
            return Content.assemble(("▸ FINAL  ", "$accent bold"), (f"{count}{figure}", "$foreground"))
        case stage:
            left = state.remaining(now)
            words = f"{figures.clock(left)} left" if left is not None else f"{figures.clock(state.clock(now))} played"
            paused = ("   paused", "$warning bold") if stage == "paused" else ("", "$muted")
            return Content.assemble((words, "$foreground bold"), paused)


def result(state: DuelState) -> Content:
    """Two lines once it is decided: the winner and why, then by how much."""
    ended = state.ended
    assert ended is not None
    header = state.header
    if ended.winner == "draw":
        head = Content.styled("a draw", "$foreground bold")
    else:
        name = printable(header.player(ended.winner).short)
        head = Content.styled(f"★ {name} wins", f"{COLOURS[ended.winner]} bold")
    lines = [Content.assemble(head, (f": {ended.reason}", "$foreground"))]
    if ended.speedup is None:
        lines.append(Content.styled(final_words(header, ended), "$muted"))
    else:
        first, second, speed = final_result(header, ended)
        over = (f"   {printable(first)} over {printable(second)}", "$foreground")
        rounds = (f", {ended.rounds} interleaved rounds", "$muted")
        lines.append(Content.assemble(figures.measured_part(speed, clock=ended.clock, weight="bold"), over, rounds))
    return Content("\n").join(lines)


def final_status(state: DuelState, name: SideName, brief: bool) -> Content:
    """The result of a player's kernel in the final, else of its last kernel. brief: without the clock."""
    assert state.ended is not None
    finalist = state.ended.side(name)
    side = state.side(name)
    costs = _costs(side, state.header.budget_usd)
    stopped = _stopped(side)
    if finalist.verdict is None:
        return Content.assemble(stopped, ("no kernel", "$muted"), *costs)
    verdict = figures.verdict_part(finalist.verdict)
    if finalist.verdict is not Verdict.PASS:
        return Content.assemble(stopped, verdict, (f"  {printable(finalist.detail)}", "$muted"), *costs)
    time = f"  {figures.microseconds(finalist.us).strip()} µs a call" if finalist.us is not None else ""
    kernel = next((each for each in side.attempts if each.number == finalist.attempt), None)
    over = f"\n{_speedup(kernel, brief)}".rstrip() if kernel is not None else ""  # a narrow pane fits two short lines
    return Content.assemble(stopped, verdict, time, over, *costs)


def status(side: SideState, now: float, budget_usd: float | None = None, brief: bool = False) -> Content:
    """A player's last verdict, or its phase and seconds; tokens and dollars if counted. brief: without clock and queue."""
    last = side.last
    none = "no kernel" if side.left else "no kernel yet"
    parts = [_stopped(side), _verdict(last, now, brief) if last is not None else Content.styled(none, "$muted")]
    parts += _costs(side, budget_usd)
    if side.left and side.left != "done" and not side.stopped:
        why = {"time": "time is over", "agreed": "ready for the final"}.get(side.left) or printable(side.left)
        parts.append(Content.styled(f" · {why}", "$muted"))
    elif side.said and not side.left:
        parts.append(Content.styled(f" · {printable(side.said)}", "$muted"))
    return Content.assemble(*parts)


def _stopped(side: SideState) -> Content:
    """Why a player stopped, first, so that a long verdict cannot hide it."""
    if not side.stopped:
        return Content("")
    reason = shortened(side.stopped) if side.stopped.startswith(LIMIT) else " ".join(side.stopped.split())
    return Content.styled(f"{printable(figures.cut(reason, MOST_REASON))}\n", "$warning")


def _costs(side: SideState, budget_usd: float | None) -> list[Content]:
    """Tokens and dollars, if they are counted, and the limit in dollars."""
    if not side.tokens:
        return []
    about = "~" if side.estimated else ""
    money = money_words(side.usd, side.estimated, budget_usd)
    words = [f"{about}{figures.amount(side.tokens, 'tok')}", *filter(None, [money])]
    return [Content.styled(f" · {' · '.join(words)}", "$muted")]


def _speedup(attempt: AttemptState, brief: bool = False) -> str:
    """ "▲ 1.31× end-to-end", with the sign of its outcome; empty if nothing was timed. brief: without the clock."""
    if attempt.speedup is None:
        return ""
    said = attempt.judged.outcome if attempt.judged is not None else ""
    return _on_clock(attempt.speedup, "" if brief else attempt.clock, said)


def _on_clock(speed: Interval, clock: str, said: str = "") -> str:
    return f"{figures.speedup_words(speed, said)} {WHERE.get(clock, '')}".rstrip()


def _verdict(attempt: AttemptState, now: float, brief: bool) -> Content:
    judged, doing = attempt.judged, attempt.phase.partition(" (")[0] if brief else attempt.phase
    if judged is None:
        words = doing.replace(WAITING, "Waiting: another run is timing") or "waiting for the judge"
        words = f"▸ {printable(doing or WAITING if brief else words)}"
        since = (f" {figures.clock(now - attempt.since)}", "$muted")
        return Content.assemble((words, "$accent"), since, f"  {_speedup(attempt, brief)}".rstrip())
    verdict = figures.verdict_part(judged.verdict)
    if judged.verdict is not Verdict.PASS:
        return Content.assemble(verdict, (f"  {printable(judged.detail)}", "$muted"))
    speed, clock = judged.speedup, "" if brief else judged.clock
    words = judged.outcome if speed is None else figures.measured_words(speed, judged.outcome, clock)
    measuring = f" · {printable(doing)}" if doing else ""
    return Content.assemble(verdict, f"  {words}".rstrip(), (measuring, "$accent"))


def attempts(side: SideState, name: SideName, player: str, over: bool = False) -> Content:
    """ "house  1 ✗ · 2 ▲1.05 · 3 …": all kernels of a player. over: no more verdicts will come."""
    words = []
    for attempt in side.attempts:
        if attempt.judged is None:
            words.append(f"{attempt.number} {'–' if over else '…'}")
        elif attempt.passed and attempt.judged.speedup is not None:
            speed = figures.speedup_words(attempt.judged.speedup, attempt.judged.outcome)  # "▲ 1.05×", or the interval
            words.append(f"{attempt.number} {speed.replace(' ', '').removesuffix('×')}")
        else:
            words.append(f"{attempt.number} {'✓' if attempt.passed else '✗'}")
    if side.writing and not side.left:
        words.append(f"{side.writing} writing")
    return Content.assemble((f"{printable(player)}  ", COLOURS[name]), (" · ".join(words) or "–", "$foreground"))


def final_kernel(state: DuelState, name: SideName) -> AttemptState | None:
    """The kernel with which a player enters the final: the best one; the last one if none was correct."""
    side = state.side(name)
    return side.best or side.last


def pane_title(state: DuelState, name: SideName, room: int) -> str:
    """ "gpt-5.5 ─ kernel 3, writing"; at the end "★ gpt-5.5 ─ kernel 2". Of more than `room` cells the player is cut."""
    side, ended = state.side(name), state.ended
    crown = "★ " if ended is not None and ended.winner == name else ""
    shown = final_kernel(state, name) if ended is not None else side.last
    kernel = f" ─ kernel {shown.number}" if shown is not None else ""
    if side.writing and not side.left and ended is None:
        kernel = f" ─ kernel {side.writing}, writing"
    player = figures.cut(printable(state.header.player(name).short), room - len(crown + kernel))
    return f"{crown}{player}{kernel}"
