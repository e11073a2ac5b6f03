"""The result of a duel: as text, as one SVG without external references, and as the JSON of `duel --json`."""

import math
from typing import Any
from xml.sax.saxutils import escape

import msgspec

from arena.duel.events import SIDES, DuelEnded, DuelHeader, DuelPlayer, Finalist, SideName, Winner
from arena.duel.journal import DuelRecord
from arena.duel.state import DuelState, SideState
from arena.players.program.watch import LIMIT
from arena.records.report_text import speed_span, verdict_span, where_words
from arena.records.run_record import fields_of
from arena.setting_choice import sizes_words
from arena.words.untrusted_text import printable
from sandbox.protocol.events import Interval
from sandbox.protocol.verdict import Verdict
from sandbox.timing.interval import outcome

WIDTH, HEIGHT = 880, 440
CHART = (40, 220, 800, 150)
"""x, y, width, height of the race chart."""
MOST_REASON = 48
"""Maximum characters of a side's end reason."""
_BACKGROUND, _TEXT, _MUTED, _RULE = "#101418", "#e6e6e6", "#8b949e", "#30363d"
_COLOURS: dict[SideName, str] = {"left": "#4cc2ff", "right": "#ffb454"}
_FAILED = "#ff6b6b"
_FONT = "ui-monospace, Menlo, Consolas, monospace"


def text_card(header: DuelHeader, ended: DuelEnded) -> str:
    """Returns the result as a few lines of text, without colours."""
    names = f"{header.left.short} vs {header.right.short}"
    return "\n".join(
        printable(line)
        for line in (
            f"pkb-arena duel · {header.problem_id} {header.slug} · {where_words(header.setting)}",
            *([] if header.preset_sizes else [f"{sizes_words('sizes', header.setting.sizes)}"]),
            f"{names}: {winner_words(header, ended)}",
            *(f"  {header.player(name).short:<28} {'   '.join(_figures(header, ended.side(name)))}" for name in SIDES),
            final_words(header, ended),
            *filter(None, [unrated_words(header, ended)]),
        )
    )


def unrated_words(header: DuelHeader, ended: DuelEnded) -> str:
    """Returns "not rated: model:fake failed before it submitted a kernel"; empty for a duel that is rated."""
    names = " and ".join(header.player(name).short for name in ended.never_played)
    it = "it" if len(ended.never_played) == 1 else "they"
    return f"not rated: {names} failed before {it} submitted a kernel" if names else ""


def winner_words(header: DuelHeader, ended: DuelEnded) -> str:
    """Returns "house wins: faster in the final", or "a draw: the interval includes 1"."""
    if ended.winner == "draw":
        return f"a draw: {ended.reason}"
    return f"{header.player(ended.winner).short} wins: {ended.reason}"


def result_words(record: DuelRecord) -> str:
    """Returns `winner_words`, or `abandoned_words` of a duel that was not decided."""
    if record.ended is not None:
        return winner_words(record.header, record.ended)
    return abandoned_words(record.state or DuelState(record.header))


def abandoned_words(state: DuelState) -> str:
    """Returns what stood: "abandoned in the final (it was cancelled): house over you ▲ 1.31× [1.28, 1.34] end-to-end"."""
    header = state.header
    if state.final is None:
        stood = ", ".join(f"{header.player(side).short} {_best_words(state.side(side))}" for side in SIDES)
    elif state.final_samples:
        last = state.final_samples[-1]
        first, second, speed = _first(header, last.speedup, "right" if last.speedup.high < 1 else "left")
        stood = f"{first} over {second} {speed_words(speed, last.clock)}, round {last.round} of {last.rounds}"
    else:
        stood = "nothing was timed"
    where = "abandoned" if state.final is None else "abandoned in the final"
    return f"{where} ({state.abandoned}): {stood}"


def _best_words(side: SideState) -> str:
    if side.best is None:
        return "without a correct kernel"
    return speed_words(side.best.speedup, side.best.clock) if side.best.speedup is not None else "with a correct kernel"


def speed_words(speed: Interval, clock: str) -> str:
    """Returns "▲ 1.31× [1.28, 1.34] end-to-end"; without the median if it is too noisy.

    clock: "call" or "device"; empty if it is unknown.
    """
    return speed_span(speed, outcome(speed), clock, said=False)[1]


def money_words(usd: float, estimated: bool, budget_usd: float | None) -> str:
    """Returns "~$0.21 of $2": the money spent, and the limit if there was one; empty if nothing was spent."""
    if not usd:
        return ""
    limit = f" of ${budget_usd:g}" if budget_usd is not None else ""
    return f"{'~' if estimated else ''}${usd:.{2 if usd >= 0.01 else 4}f}{limit}"


def _figures(header: DuelHeader, finalist: Finalist) -> list[str]:
    """Returns a side's verdict and time, its speedup over the baseline, its money and its end reason, as texts."""
    parts = ["– no kernel" if finalist.verdict is None else verdict_span(finalist.verdict)[1]]
    if finalist.verdict is Verdict.PASS and finalist.us is not None:
        parts[0] += f"   {finalist.us:,.1f} µs a call"
    if finalist.verdict is Verdict.PASS and finalist.speedup is not None:
        parts.append(f"{speed_words(finalist.speedup, finalist.clock)} over the baseline")
    money = money_words(finalist.usd, finalist.estimated, header.budget_usd)
    return [*parts, *filter(None, [money, shortened(finalist.stopped)])]


def shortened(reason: str) -> str:
    """Shortens a side's end reason to one short line. The journal has the whole reason."""
    line = " ".join((reason.partition(":")[0] if reason.startswith(LIMIT) else reason).split())
    return line if len(line) <= MOST_REASON else line[: MOST_REASON - 1].rstrip() + "…"


def final_result(header: DuelHeader, ended: DuelEnded) -> tuple[str, str, Interval]:
    """Returns (first, second, speedup of first over second). The winner is first; in a draw, the left side. Needs a final."""
    assert ended.speedup is not None
    return _first(header, ended.speedup, ended.winner)


def _first(header: DuelHeader, speed: Interval, winner: Winner) -> tuple[str, str, Interval]:
    first, second = header.left.short, header.right.short
    if winner == "right" and speed.low > 0:
        return second, first, Interval(1 / speed.median, 1 / speed.high, 1 / speed.low)
    return first, second, speed


def final_words(header: DuelHeader, ended: DuelEnded) -> str:
    """Returns "house over you ▲ 1.31× [1.28, 1.34], 42 interleaved rounds": as in `final_result`."""
    if ended.speedup is None:
        return f"no interval after {ended.rounds} interleaved rounds" if ended.rounds else "no final was measured"
    first, second, speed = final_result(header, ended)
    return f"{first} over {second} {speed_words(speed, ended.clock)}, {ended.rounds} interleaved rounds"


# --- SVG -----------------------------------------------------------------------------------------------------


def svg_card(state: DuelState) -> str:
    """Draws the result with the race chart: speedup over the baseline against time, a cross for each failed kernel."""
    header, ended = state.header, state.ended
    assert ended is not None
    head = f"{header.problem_id} · {header.title}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="{_FONT}">',
        f"<title>{_svg(text_card(header, ended).splitlines()[1])}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="14" fill="{_BACKGROUND}"/>',
        _line(40, 44, head, 18, _TEXT, weight="bold"),
        _line(40, 66, f"pkb-arena duel · {where_words(header.setting)}", 13, _MUTED),
    ]
    for name, x, anchor in (("left", 40, "start"), ("right", WIDTH - 40, "end")):
        side: SideName = "left" if name == "left" else "right"
        crown = " ★" if ended.winner == side else ""
        parts.append(_line(x, 110, header.player(side).short + crown, 22, _COLOURS[side], anchor, "bold"))
        for row, words in enumerate(_figures(header, ended.side(side))):
            parts.append(_line(x, 132 + 16 * row, words, 12, _TEXT, anchor))
    parts.append(_line(WIDTH // 2, 110, "vs", 14, _MUTED, "middle"))
    parts.append(_line(40, 204, winner_words(header, ended), 14, _TEXT))
    parts += _race(state)
    parts.append(_line(40, HEIGHT - 24, final_words(header, ended), 13, _TEXT))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _race(state: DuelState) -> list[str]:
    x, y, width, height = CHART
    points = {name: race_points(state.side(name)) for name in SIDES}
    if not any(points.values()):
        return [_line(x, y + height // 2, "No kernel has a speedup.", 12, _MUTED)]
    speeds = [end for line in points.values() for _, speed in line if speed for end in msgspec.structs.astuple(speed)]
    low, top = max(min([0.7, *speeds]) / 1.2, 0.01), max([1.5, *speeds]) * 1.08
    last = max([1.0, *(at for line in points.values() for at, _ in line)])
    until = last * 1.05

    def place(at: float, speed: float) -> tuple[float, float]:
        # Logarithmic scale: 2x and 0.5x have the same distance from 1x.
        share = math.log(min(max(speed, low), top) / low) / math.log(top / low)
        return x + width * at / until, y + height * (1 - share)

    one = place(0, 1.0)[1]
    parts = [
        f'<line x1="{x}" y1="{one:.1f}" x2="{x + width}" y2="{one:.1f}" stroke="{_RULE}" stroke-dasharray="4 4"/>',
        _line(x, round(one) - 4, "1× baseline", 10, _MUTED),
        _line(x, y + 10, f"{top:.1f}×", 10, _MUTED),
        _line(x + width, y + height + 18, f"{last:.0f} s", 10, _MUTED, "end"),
    ]
    for name, line in points.items():
        passed = [place(at, speed.median) for at, speed in line if speed is not None]
        for at, speed in line:
            if speed is not None:
                (px, top_y), (_, low_y) = place(at, speed.high), place(at, speed.low)
                end = f'x1="{px:.1f}" y1="{top_y:.1f}" x2="{px:.1f}" y2="{low_y:.1f}"'
                parts.append(f'<line {end} stroke="{_COLOURS[name]}" stroke-width="7" stroke-opacity="0.35"/>')
        if passed:
            path = " ".join(f"{px:.1f},{py:.1f}" for px, py in [*passed, (x + width, passed[-1][1])])
            parts.append(f'<polyline points="{path}" fill="none" stroke="{_COLOURS[name]}" stroke-width="2.5"/>')
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{_COLOURS[name]}"/>' for px, py in passed]
        for at, speed in line:
            if speed is None:
                parts.append(_line(round(place(at, low)[0]), y + height, "✗", 14, _FAILED, "middle"))
    return parts


def race_points(side: SideState) -> list[tuple[float, Interval | None]]:
    """Returns (seconds, speedup over the baseline) of each judged kernel, None if it failed. Skips correct ones without."""
    return [
        (judged.at, judged.speedup if attempt.passed else None)
        for attempt in side.attempts
        if (judged := attempt.judged) is not None and not (attempt.passed and judged.speedup is None)
    ]


def _svg(text: str) -> str:
    return escape(" ".join(printable(text).split()))


def _line(x: int, y: int, text: str, size: int, colour: str, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"'
        f' font-weight="{weight}">{_svg(text)}</text>'
    )


def duel_report(state: DuelState) -> dict[str, Any]:
    """Returns the object of `duel --json`. Fields are added, never renamed.

    Times are in seconds, `us` in microseconds. `speedup`: of left over right in the final; null without a final. Of a side,
    `verdict`, `detail` and `us` are from the final if there was one. `rated`: false if a provider or program failed
    before its side submitted a kernel.
    """
    header, ended = state.header, state.ended
    assert ended is not None
    return {
        "duel_id": header.duel_id,
        "problem": header.slug,
        "id": header.problem_id,
        "category": header.category,
        **fields_of(header.setting, "device world dtype preset sizes"),
        **fields_of(ended, "winner reason speedup rounds clock"),
        "left": _side(header.left, state.left, ended.left),
        "right": _side(header.right, state.right, ended.right),
        "seconds": ended.at,
        "budget_usd": header.budget_usd,
        "rated": not ended.never_played,
    }


def _side(player: DuelPlayer, side: SideState, finalist: Finalist) -> dict[str, Any]:
    attempts = [
        {"attempt": each.number, "sha256": each.sha256}
        | fields_of(each.judged, "run_id verdict outcome clock detail at speedup")
        for each in side.attempts
        if each.judged is not None
    ]
    kernel = player.kernel_path or player.name
    told = {"player": player.name, "kind": player.kind, "kernel": kernel, "attempts": attempts}
    return msgspec.structs.asdict(finalist) | told | {"usd": side.usd, "left": side.left, "tokens": side.tokens}
