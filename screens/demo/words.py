"""The texts on the slides of a demo."""

from collections.abc import Iterable

from textual.content import Content

from arena.demo import DemoStage
from arena.duel.card import final_result
from arena.duel.events import SIDES, SideName
from arena.duel.state import AttemptState, DuelState
from arena.words.headline import WHERE, factor, outcome_words
from arena.words.untrusted_text import printable
from sandbox.protocol.verdict import Verdict
from sandbox.timing.interval import outcome
from screens import figures
from screens.duel.words import COLOURS

_PHASES = {
    "prepare": "inputs and baseline are being prepared",
    "load": "the kernel is being loaded",
    "compile": "the kernel is being compiled",
    "check": "checked on fresh secret inputs",
    "time": "timed against the baseline",
}
LEAST_TRACK = 2.0
"""Smallest speedup at the right end of the track."""


def head(stage: DemoStage, scenes: int, width: int) -> Content:
    """The line above every slide: live or recorded, and how to take over. The app's name is shown if it fits."""
    mark = ""
    if stage.slide in ("problem", "race", "verdict"):
        mark = f"● RECORDED {stage.recorded}" if stage.recorded else "● LIVE on this machine"
    line = Content.assemble(
        (f" {mark} ", f"{'$warning' if stage.recorded else '$success'} bold"),
        (f"  {stage.number} of {scenes}   any key takes over", "$muted"),
    )
    named = Content.assemble((" pkb-arena ", "$accent bold"), line)
    return named if named.cell_length <= width else line


def player(state: DuelState, name: SideName) -> str:
    """The name of a side's player in capitals."""
    return capitals(state.header.player(name).name, [state.header.player(side).name for side in SIDES])


def capitals(name: str, players: Iterable[str] = ()) -> str:
    """A player's name in capitals. Without "model:" and the like, unless another of the players then had the same name."""
    full = printable(name).upper()
    short = full.rpartition(":")[2]
    return full if any(capitals(other) == short for other in players if other != name) else short


def figure(attempt: AttemptState | None) -> tuple[str, str]:
    """(speedup of a kernel with its sign, theme colour); a cross if it failed."""
    if attempt is None:
        return "", "$muted"
    if attempt.judged is not None and attempt.judged.verdict is not Verdict.PASS:
        return "✗", "$error"
    if attempt.speedup is None:
        return ("✓", "$success") if attempt.judged is not None else ("…", "$muted")
    said = attempt.judged.outcome if attempt.judged is not None else outcome(attempt.speedup)
    if said in figures.CLEAR:
        return figures.speedup_words(attempt.speedup, said), f"${figures.outcome_style(said)}"
    return (outcome_words(said).upper(), "$foreground") if attempt.judged is not None else ("…", "$muted")


def shown_attempt(state: DuelState, name: SideName) -> AttemptState | None:
    """The kernel that a lane shows: the one being judged, else the best one, else the last."""
    side = state.side(name)
    return side.last if side.last is not None and side.last.judged is None else side.best or side.last


def track_end(state: DuelState) -> float:
    """The speedup at the right end of both tracks."""
    known = [
        attempt.speedup.median for name in SIDES for attempt in state.side(name).attempts if attempt.speedup is not None
    ]
    return max([LEAST_TRACK, *(1.1 * value for value in known)])


def track(state: DuelState, name: SideName, columns: int) -> Content:
    """A bar of two rows, as long as the speedup, with a mark at 1, which is the baseline."""
    attempt = shown_attempt(state, name)
    end = track_end(state)
    value = attempt.speedup.median if attempt is not None and attempt.speedup is not None else 0.0
    filled = round(min(1.0, value / end) * columns)
    one = min(columns - 1, round(columns / end))
    row = Content.assemble(("█" * filled, COLOURS[name]), ("░" * (columns - filled), "$rule"))
    marked = Content.assemble(row[:one], ("│", "$foreground bold"), row[one + 1 :])
    return Content("\n").join([marked] * 2)


def status(state: DuelState, name: SideName) -> Content:
    """The line below a lane: the phase, or the verdict with its detail."""
    side = state.side(name)
    last = side.last
    if side.writing and not side.left:
        return Content.styled(f"writes kernel {side.writing}: {len(side.text)} characters", "$accent")
    if last is None:
        return Content.styled("no kernel yet", "$muted")
    number = f"kernel {last.number}: "
    if last.judged is None:
        return Content.styled(number + _PHASES.get(last.phase, "waits for the judge"), "$accent")
    verdict = last.judged.verdict
    detail = printable(last.judged.detail) if verdict is not Verdict.PASS else _interval_words(last)
    return Content.assemble((number, "$muted"), figures.verdict_part(verdict, "bold"), f"  {detail}")


def _interval_words(attempt: AttemptState) -> str:
    if attempt.speedup is None:
        return ""
    where = WHERE.get(attempt.clock, "")
    return f"{figures.interval_words(attempt.speedup)} {where} over the baseline"


def race_line(stage: DemoStage, state: DuelState) -> tuple[str, str]:
    """(clock or state of the final, theme colour), in big type below the lanes."""
    if state.stage == "final":
        speed = state.final_samples[-1].speedup if state.final_samples else None
        if speed is None or outcome(speed) not in figures.CLEAR:
            return "FINAL", "$accent"
        ahead: SideName = "left" if speed.median > 1 else "right"
        return f"FINAL {player(state, ahead)} ▲ {factor(max(speed.median, 1 / speed.median))}×", "$accent"
    return figures.clock(state.clock(stage.clock())), "$muted"


def winner(state: DuelState) -> tuple[str, str]:
    """(who won, theme colour)."""
    assert state.ended is not None
    if state.ended.winner == "draw":
        return "A DRAW", "$foreground"
    return f"{player(state, state.ended.winner)} WINS", COLOURS[state.ended.winner]


def margin(state: DuelState) -> tuple[str, str, str]:
    """(speedup of the final, theme colour, over whom). Without a measurement: an empty speedup, and the reason last."""
    ended = state.ended
    assert ended is not None
    if ended.speedup is None:
        return "", "$muted", ended.reason
    _, second, speed = final_result(state.header, ended)
    said = outcome(speed)
    over = capitals(second)
    if said in figures.CLEAR:
        return figures.speedup_words(speed, said), f"${figures.outcome_style(said)}", f"OVER {over}"
    return outcome_words(said).upper(), "$foreground", ""


def small_print(state: DuelState) -> Content:
    """Below a result: the interval, the rounds, the setting."""
    ended = state.ended
    assert ended is not None
    setting = state.header.setting
    parts = [ended.reason]
    if ended.speedup is not None:
        _, _, speed = final_result(state.header, ended)
        where = WHERE.get(ended.clock, "")
        parts.append(f"99 % interval {figures.interval_words(speed)} {where}, {ended.rounds} interleaved rounds")
    parts.append(f"{setting.preset} · {setting.dtype} · {setting.world} ranks · {setting.device}")
    return Content.styled("   ".join(parts), "$muted")
