"""A duel in the words of the screen: the line over it, a side's status, the list of its kernels."""

from textual.content import Content

from arena.duel.card import final_words, winner_words
from arena.duel.events import SIDES, SideName
from arena.duel.state import AttemptState, DuelState, SideState
from arena.foreign_text import printable
from sandbox.verdict import Verdict
from screens import figures

COLOURS: dict[SideName, str] = {"left": "$accent", "right": "$warning"}


def clock_words(seconds: float) -> str:
    """ "08:41"."""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def title(state: DuelState) -> Content:
    """What is played, under which rules."""
    header = state.header
    setting = header.setting
    rules = f"{header.minutes:g} min" if header.minutes is not None else "no clock"
    where = f"{setting.preset} · {setting.dtype} · W={setting.world} · {setting.device}"
    return Content.assemble(
        ("duel  ", "$muted"),
        (f"{header.problem_id} · {header.title}", "$foreground bold"),
        (f"   {rules} · {where}", "$muted"),
    )


def score(state: DuelState) -> Content:
    """ "you ▲ 1.31×  vs  house ▲ 1.18×", or who has won."""
    parts: list[Content] = []
    for name in SIDES:
        best = state.side(name).best
        speed = best.speedup if best is not None else None
        words = figures.speedup_words(speed) if speed is not None else "–"
        won = state.ended is not None and state.ended.winner == name
        crown = "★ " if won else ""
        parts.append(
            Content.assemble(
                (f"{crown}{printable(state.header.contestant(name).player)} ", f"{COLOURS[name]} bold"), words
            )
        )
    return Content.assemble(parts[0], ("   vs   ", "$muted"), parts[1])


def stage_line(state: DuelState, now: float) -> Content:
    """The clock, or what goes on in its place."""
    match state.stage:
        case "ended":
            assert state.ended is not None
            words = winner_words(state.header, state.ended)
            figure = final_words(state.header, state.ended) if state.ended.speedup is not None else ""
            return Content.assemble(
                (printable(words), "$success bold"), (f"   {printable(figure)}", "$foreground")
            )
        case "abandoned":
            return Content.styled(f"abandoned: {printable(state.abandoned)}", "$warning")
        case "final":
            sample = state.final_samples[-1] if state.final_samples else None
            count = f"round {sample.round}/{sample.rounds}" if sample else "starting both worlds"
            names = f"{state.header.left.player} over {state.header.right.player}"
            figure = f"   {printable(names)} {figures.speedup_words(sample.speedup)}" if sample else ""
            return Content.assemble(("▸ FINAL  ", "$accent bold"), (f"{count}{figure}", "$foreground"))
        case stage:
            left = state.remaining(now)
            words = (
                f"{clock_words(left)} left" if left is not None else f"{clock_words(state.clock(now))} played"
            )
            paused = ("   paused", "$warning bold") if stage == "paused" else ("", "$muted")
            return Content.assemble((words, "$foreground bold"), paused)


def status(side: SideState) -> Content:
    """A side's last verdict, or the phase its kernel is in; tokens and dollars where they are counted."""
    last = side.last
    parts: list[Content] = (
        [_verdict(last)] if last is not None else [Content.styled("no kernel yet", "$muted")]
    )
    if side.tokens:
        about = "~" if side.estimated else ""
        money = f" · {about}${side.usd:.2f}" if side.usd else ""
        parts.append(Content.styled(f" · {about}{figures.amount(side.tokens, 'tok')}{money}", "$muted"))
    if side.left and side.left != "done":
        parts.append(Content.styled(f" · {printable(side.left)}", "$muted"))
    elif side.said and not side.left:
        parts.append(Content.styled(f" · {printable(side.said)}", "$muted"))
    return Content.assemble(*parts)


def _verdict(attempt: AttemptState) -> Content:
    judged = attempt.judged
    if judged is None:
        speed = attempt.speedup
        words = f"▸ {attempt.phase or 'waiting for the judge'}"
        return Content.assemble((words, "$accent"), f"  {figures.speedup_words(speed)}" if speed else "")
    colour = f"${figures.verdict_style(judged.verdict)}"
    if judged.verdict is not Verdict.PASS:
        return Content.assemble(
            (figures.verdict_words(judged.verdict), colour), (f"  {printable(judged.detail)}", "$muted")
        )
    speed_text = (
        f"  {figures.speedup_words(judged.speedup, judged.outcome)} {figures.interval_words(judged.speedup)}"
        if judged.speedup is not None
        else ""
    )
    return Content.assemble((figures.verdict_words(judged.verdict), colour), speed_text)


def attempts(side: SideState, name: SideName, player: str) -> Content:
    """ "house  1 ✗ · 2 ▲1.05 · 3 …"."""
    words = []
    for attempt in side.attempts[-12:]:
        if attempt.judged is None:
            words.append(f"{attempt.number} …")
        elif attempt.passed and attempt.judged.speedup is not None:
            sign = figures.outcome_sign(attempt.judged.outcome)
            words.append(f"{attempt.number} {sign}{figures.factor(attempt.judged.speedup.median)}")
        else:
            words.append(f"{attempt.number} {'✓' if attempt.passed else '✗'}")
    if side.writing:
        words.append(f"{side.writing} writing")
    return Content.assemble(
        (f"{printable(player)}  ", COLOURS[name]), (" · ".join(words) or "–", "$foreground")
    )


def pane_title(state: DuelState, name: SideName) -> str:
    """ "gpt-5.5 ─ kernel 3, writing"."""
    side = state.side(name)
    player = printable(state.header.contestant(name).player)
    if side.writing:
        return f"{player} ─ kernel {side.writing}, writing"
    return f"{player} ─ kernel {side.last.number}" if side.last is not None else player
