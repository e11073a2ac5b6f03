"""A board as one HTML file without external references, and its plots as SVG with matplotlib (the extra `board`)."""

import io
import math
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arena.board.definitions import Score
from arena.board.gathering import Board
from arena.board.scorecard import AGENTS, BASELINES, HOUSES, MODELS, PEOPLE, ResultPlace, Scorecard
from arena.board.tables import (
    DEFINITIONS,
    HEADINGS,
    bound_words,
    card_row,
    place_words,
    published_row,
    published_words,
    share_words,
)
from arena.duel.events import short_name
from arena.errors import MachineError, require_extra
from arena.words.markup import Markup, document, element, joined, keyed, table, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


INK, MUTED, RULE, PAPER = "#1f2328", "#68707a", "#d5d9de", "#ffffff"
COLOURS = {MODELS: "#2f6fde", AGENTS: "#8250df", PEOPLE: "#1a7f52", HOUSES: "#bc5a00", BASELINES: "#7d8590"}
"""Colours by the kind of player."""
MOST_ROWS = 24
"""Most rows of a plot; tables have all."""
_WIDE = 9.6
"""Width of a plot in inches; SVG scales."""


def shares_plot(board: Board, place: ResultPlace) -> str:
    """Draws pass@1 and fast_1 of every player in a place, with the published results below."""
    cards = [card for card in board.cards if card.place == place][:MOST_ROWS]
    rows = len(cards) + len(board.published)
    figure, axes = _figure(1, 2, 0.30 * rows + 1.0, sharey=True)
    names = [short_name(card.player) for card in cards] + [f"{row.name} (published)" for row in board.published]
    for axis, title, ours, theirs in (
        (axes[0], "right: pass@1", [card.pass_1 for card in cards], [row.pass_1 for row in board.published]),
        (
            axes[1],
            "right and faster: fast₁",
            [card.fast.get("1") for card in cards],
            [row.fast_1 for row in board.published],
        ),
    ):
        axis.set_title(title, loc="left", fontsize=9, color=INK)
        _dots(axis, ours, [COLOURS[card.kind] for card in cards])
        _dots(axis, theirs, [MUTED] * len(theirs), offset=len(cards), hollow=True)
        axis.set_xlim(-0.02, 1.02)
        axis.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])
    axes[0].set_yticks(range(rows), names)
    axes[0].set_ylim(rows - 0.4, -0.6)
    if board.published and cards:
        for axis in axes:
            axis.axhline(len(cards) - 0.5, color=RULE, linewidth=0.8, linestyle=(0, (4, 3)))
    return _svg(figure)


def speedups_plot(board: Board, place: ResultPlace) -> str:
    """Draws geometric means of speedups over the baseline as called, with intervals; empty if there are none."""
    cards = [card for card in board.cards if card.place == place and card.speedup][:MOST_ROWS]
    if not cards:
        return ""
    figure, (axis,) = _figure(1, 1, 0.30 * len(cards) + 1.0)
    axis.set_xscale("log", base=2)
    _dots(axis, [card.speedup for card in cards], [COLOURS[card.kind] for card in cards])
    axis.axvline(1.0, color=MUTED, linewidth=0.9)
    values = [end for card in cards if (score := card.speedup) for end in (score.value, *_ends(score))]
    low, high = max(min([*values, 0.8]), 1 / 16), min(max([*values, 1.25]), 64.0)
    ticks = [2.0**n for n in range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)]
    axis.set_xlim(ticks[0] / 1.1, ticks[-1] * 1.1)
    axis.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    axis.minorticks_off()
    axis.set_yticks(range(len(cards)), [f"{short_name(card.player)}  ({_problems(card)})" for card in cards])
    axis.set_ylim(len(cards) - 0.4, -0.6)
    return _svg(figure)


def whole_picture(board: Board) -> str:
    """Draws one SVG with the shares of the place with the most attempts, for a README or a slide."""
    place = board.busiest_place
    if place is None:
        raise MachineError("there is nothing to draw yet", "`pkb-arena sweep --players baseline,house` makes results")
    head, body = shares_plot(board, place).split(">", 1)
    # The background is drawn, because slides and converters ignore one in a style.
    return f'{head}>\n <rect width="100%" height="100%" fill="{PAPER}"/>{body}'


# --- matplotlib --------------------------------------------------------------------------------------------


def _figure(rows: int, columns: int, height: float, **more: Any) -> tuple["Figure", Sequence["Axes"]]:
    matplotlib = require_extra("board", "matplotlib", "plots need matplotlib")
    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams.update(
        {
            "svg.fonttype": "none",
            "font.family": "sans-serif",
            "svg.hashsalt": "pkb-arena",
            "text.parse_math": False,  # a player may be called $x$
        }
    )
    figure, axes = pyplot.subplots(rows, columns, figsize=(_WIDE, height), layout="constrained", squeeze=False, **more)
    figure.patch.set_alpha(0.0)
    for axis in axes.flat:
        axis.patch.set_alpha(0.0)
        axis.tick_params(length=0, labelsize=8, colors=INK)
        for side in axis.spines.values():
            side.set_visible(False)
        axis.grid(axis="x", color=RULE, linewidth=0.7)
        axis.set_axisbelow(True)
    return figure, list(axes.flat)


def _dots(
    axis: "Axes", scores: Sequence[Score | None], colours: Sequence[str], offset: int = 0, hollow: bool = False
) -> None:
    for row, (score, colour) in enumerate(zip(scores, colours, strict=True), offset):
        if score is None:
            continue
        axis.plot(_ends(score), [row, row], color=colour, linewidth=2.2, alpha=0.45, solid_capstyle="round")
        axis.plot([score.value], [row], "o", markersize=6, color=PAPER if hollow else colour, markeredgecolor=colour)


def _ends(score: Score) -> tuple[float, float]:
    """Returns the ends of the interval; the value itself for a single problem, whose interval is not known."""
    if math.isinf(score.high):
        return score.value, score.value
    return score.low, score.high


def _problems(card: Scorecard) -> str:
    assert card.speedup is not None
    return f"{card.speedup.problems} problem{'s' if card.speedup.problems != 1 else ''}"


def _svg(figure: "Figure") -> str:
    from matplotlib import pyplot

    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def with_theme(svg: str) -> Markup:
    """Fits an SVG to a page: uses the page's variables as colours, for dark mode, too, and the page's width."""
    names = {INK: "ink", MUTED: "muted", RULE: "rule", PAPER: "paper"}
    names |= {colour: kind for kind, colour in COLOURS.items()}
    for colour, name in names.items():
        svg = svg.replace(colour, f"var(--{name})")
    return Markup(re.sub(r'width="([\d.]+)pt" height="([\d.]+)pt"', "", svg, count=1))


def page(board: Board) -> str:
    """Returns the text of the HTML file.

    Raises:
        MachineError: matplotlib is not installed.
    """
    made = time.strftime("%d %B %Y", time.gmtime(board.created))
    about = f"Multi-GPU kernels for {board.problems} problems of ParallelKernelBench. {made}, pkb-arena {board.arena}."
    legend = [joined(_dot(kind), kind, " ") for kind in COLOURS]
    parts = [element("h1", "pkb-arena board"), _muted(about), element("p", *legend, class_="muted")]
    for place in board.places:
        parts += [element("h2", place_words(board, place)), _table(board, place)]
        parts.append(
            element("h3", "Right, and right and faster, of one attempt. Lines: 95 % intervals. Hollow: published.")
        )
        parts.append(element("div", with_theme(shares_plot(board, place)), class_="card"))
        if svg := speedups_plot(board, place):
            parts.append(
                element("h3", "Geometric mean of speedups over the baseline, over the problems that a player solved")
            )
            parts.append(element("div", with_theme(svg), class_="card"))
        parts += [element("h3", "By category"), _category_table(board, place)]
    if not board.places:
        parts += [element("h2", "No results yet"), _muted("pkb-arena sweep --players baseline,house makes some.")]
        parts.append(_table(board, None))
    parts += [_muted(f"Not on this page: {left_out.what}.") for left_out in board.left_out]
    parts += [element("h2", "What the numbers mean"), element("pre", DEFINITIONS, class_="words")]
    return document("pkb-arena board", *parts, _muted(f"{published_words(board)}."), sorts=True, drawn=True)


def _muted(words: str) -> Markup:
    return element("p", words, class_="muted")


def _dot(kind: str) -> Markup:
    return element("span", "●\u00a0", class_=kind)


def _table(board: Board, place: ResultPlace | None) -> Markup:
    cards = [card for card in board.cards if card.place == place]
    rows = [(card.kind, card_row(board, card)) for card in cards]
    rows += [("published", published_row(row)) for row in board.published]
    shown = [n for n in range(len(HEADINGS)) if n != 1 and any(row[n] not in ("", "–") for _, row in rows)]
    cells = [[_cell(kind, n, row[n]) for n in shown] for kind, row in rows]
    return element("div", table([HEADINGS[n] for n in shown], cells, sorts=True), class_="card")


def _category_table(board: Board, place: ResultPlace) -> Markup:
    """Returns the table of solved problems and of the scores against the hardware, by category."""
    rows = [
        (
            *(card.scope.partition(":")[2], card.player, f"{card.solved} of {card.problems}", str(card.faster)),
            *(bound_words(card.percent), share_words(card.gap_closed), str(card.no_roofline or "")),
        )
        for card in board.scores
        if card.place == place and card.scope.startswith("category:")
    ]
    heads = ("category", "player", "solved", "faster", "of bound", "gap closed", "no roofline")
    return element("div", table(heads, [list(map(_with_interval, row)) for row in rows], sorts=True), class_="card")


def _cell(kind: str, number: int, words: str) -> Markup:
    if number:
        return _with_interval(words)
    return element("em", words, " (published)") if kind == "published" else joined(_dot(kind), words)


def _with_interval(words: str) -> Markup:
    """Shows the interval smaller than its value. Numbers get a key to sort by."""
    value, bracket, rest = words.partition(" [")
    shown = joined(value, " ", element("small", f"[{rest}")) if bracket else text(words)
    number = re.match(r"-?\d+(\.\d+)?", value)
    return keyed(shown, float(number[0])) if number else shown
