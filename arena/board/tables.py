"""A board as text: lines for a terminal, Markdown, CSV. Published rows are marked as published."""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from arena.board.definitions import BOUND_WORDS, PRINTED_PROBLEMS, Score
from arena.board.gathering import Board, PublishedRow
from arena.board.scorecard import HOLDS, ResultPlace, Scorecard
from arena.words.table import Column, TextTable, markdown_table
from arena.words.untrusted_text import printable


def share_words(score: Score | None) -> str:
    """ "41 % [31, 52]"."""
    if score is None:
        return "–"
    return f"{100 * score.value:.0f} % [{100 * score.low:.0f}, {100 * score.high:.0f}]"


def mean_words(score: Score | None, unit: str = "×", digits: int = 2) -> str:
    """ "1.42× [1.20, 1.68]"; for a single problem without the interval."""
    if score is None:
        return "–"
    ends = f" [{score.low:.{digits}f}, {score.high:.{digits}f}]" if score.problems > 1 else ""
    return f"{score.value:.{digits}f}{unit}{ends}"


def bound_words(percent: Score | None) -> str:
    """ "41 % [31, 52]": percent of bound; empty without a score."""
    return mean_words(percent, " %", 0) if percent is not None else ""


def place_words(board: Board, place: ResultPlace) -> str:
    """ "tiny · 2 ranks · cpu · Intel ..., torch 2.9.1, gloo"."""
    machine = printable(board.machines.get(place.machine, "machine not recorded"))
    ranks = f"{place.world} rank{'s' if place.world != 1 else ''}"
    where = f"from elsewhere ({place.source}) · " if place.source else ""
    return f"{where}{place.preset} · {ranks} · {place.device} · {machine}"


def counts_words(counts: Mapping[str, int]) -> str:
    """ "2 all, 1 none"."""
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def improved_words(board: Board, card: Scorecard) -> str:
    """ "2 house.py, 1 mine.py": problems in which a kernel is faster than the one that it started from."""
    return ", ".join(f"{count} {printable(name)}" for name, count in board.improved_on(card).items())


WIDTH = 100
"""Characters of a line of a table."""
BoardRow = tuple[str, ...]
"""The cells of one player, as `HEADINGS` names them."""


def _nothing(row: PublishedRow) -> str:
    """Returns the cell of a column that was not published."""
    return ""


_COLUMNS: tuple[tuple[str, Callable[[Scorecard], str], Callable[[PublishedRow], str]], ...] = (
    ("player", lambda card: printable(card.player), lambda row: row.name),
    ("kind", lambda card: card.kind, lambda row: f"published {row.kind}"),
    ("problems", lambda card: str(card.problems), lambda row: str(PRINTED_PROBLEMS)),
    ("pass@1", lambda card: share_words(card.pass_1), lambda row: share_words(row.pass_1) if row.pass_k else ""),
    (
        "pass@k",
        lambda card: share_words(card.pass_k) if card.most_attempts > 1 else "",
        lambda row: share_words(row.pass_k or row.pass_1),
    ),
    ("k", lambda card: str(card.most_attempts), lambda row: "3" if row.pass_k else "agent"),
    ("paper rule", lambda card: share_words(card.paper_1), lambda row: share_words(row.pass_1)),
    ("fast_1", lambda card: share_words(card.fast.get("1")), lambda row: share_words(row.fast_1)),
    ("fast_1.5", lambda card: share_words(card.fast.get("1.5")), _nothing),
    ("fast_2", lambda card: share_words(card.fast.get("2")), _nothing),
    ("fast_1 on graph", lambda card: share_words(card.fast_graph["1"]) if card.fast_graph else "", _nothing),
    ("solved", lambda card: str(card.solved), lambda row: str(row.solved)),
    ("faster", lambda card: str(card.faster), lambda row: str(row.faster)),
    ("speedup", lambda card: mean_words(card.speedup), _nothing),
    ("of bound", lambda card: bound_words(card.percent), _nothing),
    ("gap closed", lambda card: share_words(card.gap_closed), _nothing),
    ("no roofline", lambda card: str(card.no_roofline or ""), _nothing),
    ("too noisy", lambda card: str(card.noisy or ""), _nothing),
    ("one size", lambda card: str(card.one_size_only or ""), _nothing),
    ("backends", lambda card: counts_words(card.backends), _nothing),
    ("faster at other sizes", lambda card: counts_words(card.holds), _nothing),
    ("voided", lambda card: str(card.voided or ""), _nothing),
    ("$", lambda card: f"{card.usd:.2f}" if card.usd else "", _nothing),
)
"""The columns: heading, cell of a player's scores, cell of a published result."""
HEADINGS = (*(heading for heading, _, _ in _COLUMNS), "improved on", "rating")


def card_row(board: Board | None, card: Scorecard) -> BoardRow:
    """A player's own scores. board: for comparisons and ratings; None: both are left empty."""
    rating = board.rating(card.player) if board is not None else None
    return (
        *(cell(card) for _, cell, _ in _COLUMNS),
        improved_words(board, card) if board is not None else "",
        f"{rating.rating:.0f} ±{rating.plus_minus:.0f}" if rating is not None else "",
    )


def published_row(row: PublishedRow) -> BoardRow:
    """A published result; what was not published is empty."""
    return (*(cell(row) for _, _, cell in _COLUMNS), "", "")


def text_lines(board: Board, scope: str = "") -> list[str]:
    """The board for a terminal: a table for every place, the publication's at the end. scope: "category" or "class"."""
    lines: list[str] = []
    for place in board.places:
        lines += [place_words(board, place), *table(_rows(board, place, scope)), ""]
    lines += [published_words(board), *table([published_row(row) for row in board.published])]
    return lines


def published_words(board: Board) -> str:
    """Returns where the published rows come from, and how they differ from other rows."""
    return f"published: {board.source}; another machine, other sizes, and right means within 1e-2 there"


def _rows(board: Board, place: ResultPlace, scope: str) -> list[BoardRow]:
    cards = [card for card in board.cards if card.place == place]
    if not scope:
        return [card_row(board, card) for card in cards]
    parts = [card for card in board.scores if card.place == place and card.scope.startswith(f"{scope}:")]
    return [
        (f"{printable(card.scope.partition(':')[2]):<11} {printable(card.player)}", *card_row(board, card)[1:])
        for card in parts
    ]


def table(rows: Sequence[BoardRow], headings: Sequence[str] = HEADINGS) -> list[str]:
    """Returns the lines of a table without its empty columns. Columns beyond WIDTH follow below, beside the first again."""
    shown = [n for n in range(len(headings)) if any(row[n] not in ("", "–") for row in rows)]
    cells = [max(map(len, column)) + 2 for column in zip(headings, *rows, strict=True)]
    parts: list[list[int]] = []
    taken = WIDTH
    for n in shown:
        taken += cells[n]
        if taken > WIDTH + 2:
            parts.append(shown[:1] if parts else [])
            taken = cells[n] + sum(cells[first] for first in parts[-1])
        parts[-1].append(n)
    tables = [tuple(Column[BoardRow](headings[n], lambda row, n=n: row[n]) for n in part) for part in parts]  # type: ignore[misc]
    return [line for columns in tables for line in ("", *TextTable(columns).lines(rows))][1:]


def markdown(board: Board, scope: str = "") -> str:
    """The board as Markdown. scope: as for `text_lines`."""
    parts: list[str] = []
    for place in board.places:
        parts += [f"### {place_words(board, place)}", "", *markdown_table(HEADINGS, _rows(board, place, scope)), ""]
    parts += [f"### {published_words(board)}", "", *markdown_table(HEADINGS, map(published_row, board.published))]
    return "\n".join([*parts, "", DEFINITIONS, ""])


def csv_text(board: Board) -> str:
    """Returns a line per player, place and scope. Ends of intervals have their own columns; shares are from 0 to 1."""
    scores = ("pass_1", "pass_k", "paper_1", "fast_1", "fast_1.5", "fast_2", "fast_graph_1", "speedup", "percent")
    head = ["origin", "player", "kind", "scope", "preset", "device", "world", "machine", "problems", "attempts", "k"]
    head += ["solved", "faster", "one_size_only", "usd"]
    head += [f"{name}{end}" for name in scores for end in _ENDS]
    head += ["voided", *(f"gap_closed{end}" for end in _ENDS), "no_roofline"]
    head += [*(f"holds_{held}" for held in HOLDS), "improved_on"]
    buffer = io.StringIO()
    written = csv.DictWriter(buffer, head, restval="", extrasaction="ignore", lineterminator="\n")
    written.writeheader()
    for card in board.scores:
        found = msgspec.structs.asdict(card) | msgspec.structs.asdict(card.place)
        found |= {"origin": card.place.source or "here", "machine": board.machines.get(card.place.machine, "")}
        found |= {f"fast_{p}": score for p, score in card.fast.items()} | {"fast_graph_1": card.fast_graph.get("1")}
        found |= {f"holds_{held}": card.holds.get(held, 0) for held in HOLDS}
        found |= {"k": card.most_attempts, "usd": round(card.usd, 6), "improved_on": improved_words(board, card)}
        written.writerow(_with_ends(found, (*scores, "gap_closed")))
    for row in board.published:
        found = msgspec.structs.asdict(row)
        found |= {"origin": "published", "player": row.name, "scope": "all", "preset": "paper", "device": "cuda"}
        found |= {"problems": PRINTED_PROBLEMS, "k": 3, "paper_1": row.pass_1}
        written.writerow(_with_ends(found, scores))
    return buffer.getvalue()


_ENDS = ("", "_low", "_high")


def _with_ends(row: dict[str, object], scores: Sequence[str]) -> dict[str, object]:
    """Returns a row in which each of these scores has three cells: its value, and both ends of its interval."""
    cells = ((f"{name}{end}", cell) for name in scores for end, cell in zip(_ENDS, _ends(row.get(name)), strict=True))
    return row | dict(cells)


def _ends(score: object) -> tuple[object, object, object]:
    """The value with the ends of its interval; no ends if they are not known."""
    if not isinstance(score, Score):
        return ("", "", "")
    return (score.value, "", "") if math.isinf(score.high) else (score.value, score.low, score.high)


DEFINITIONS = f"""\
pass@k: chance that one of k attempts is right, unbiased (arXiv 2107.03374).
fast_p: right and more than p times as fast as the PyTorch + NCCL baseline, by the median (arXiv 2502.10517); "on graph":
as the baseline in a CUDA graph. faster: problems with a kernel whose whole 99 % interval is above 1.
speedup: geometric mean over the problems that were solved.
{BOUND_WORDS}
too noisy: correct kernels whose times were too noisy for a conclusion; they count as not fast, and in no mean.
paper rule: pass@1 if correct meant atol = rtol = 1e-2. one size: correct kernels that failed at other sizes.
faster at other sizes: faster kernels that are also faster at all, some or none of the other random sizes. A setting counts if
the kernel is wrong there, or its time is not too noisy.
improved on: problems in which a kernel that started from this one (`generate --from`) is faster than it, in one run with both.
voided: results that somebody marked as not earned (`pkb-arena void`); they count as failed attempts.
rating: Bradley-Terry of all duels. Brackets: 95 % intervals over problems (Wilson's; Student's on logs)."""
