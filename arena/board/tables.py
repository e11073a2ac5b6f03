"""A board as text: lines for a terminal, Markdown, CSV. Published rows are marked as published."""

import csv
import io
import math
from collections.abc import Mapping, Sequence

from arena.board.definitions import BOUND_WORDS, PRINTED_PROBLEMS, Score
from arena.board.gathering import Board, PublishedRow
from arena.board.scorecard import HOLDS, ResultPlace, Scorecard
from arena.words.table import Column, TextTable
from arena.words.untrusted_text import printable

HEADINGS = (
    *(
        "player",
        "kind",
        "problems",
        "pass@1",
        "pass@k",
        "k",
        "paper rule",
        "fast_1",
        "fast_1.5",
        "fast_2",
        "fast_1 on graph",
    ),
    *(
        "solved",
        "faster",
        "speedup",
        "of bound",
        "gap closed",
        "no roofline",
        "too noisy",
        "one size",
        "backends",
        "faster at other sizes",
        "improved on",
        "voided",
        "$",
        "rating",
    ),
)


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


BoardRow = tuple[str, ...]
"""The cells of one player, as `HEADINGS` names them."""


def card_row(board: Board, card: Scorecard) -> BoardRow:
    """A player's own scores."""
    rating = board.rating(card.player)
    return (
        printable(card.player),
        card.kind,
        str(card.problems),
        share_words(card.pass_1),
        share_words(card.pass_k) if card.most_attempts > 1 else "",
        str(card.most_attempts),
        share_words(card.paper_1),
        *(share_words(card.fast.get(p)) for p in ("1", "1.5", "2")),
        share_words(card.fast_graph["1"]) if card.fast_graph else "",
        str(card.solved),
        str(card.faster),
        mean_words(card.speedup),
        bound_words(card.percent),
        share_words(card.gap_closed),
        str(card.no_roofline or ""),
        str(card.noisy or ""),
        str(card.one_size_only or ""),
        counts_words(card.backends),
        counts_words(card.holds),
        improved_words(board, card),
        str(card.voided or ""),
        f"{card.usd:.2f}" if card.usd else "",
        f"{rating.rating:.0f} ±{rating.plus_minus:.0f}" if rating is not None else "",
    )


def published_row(row: PublishedRow) -> BoardRow:
    """A published result; what was not published is empty."""
    return (
        row.name,
        f"published {row.kind}",
        str(PRINTED_PROBLEMS),
        share_words(row.pass_1) if row.kind == "model" else "",
        share_words(row.pass_k if row.kind == "model" else row.pass_1),
        "3" if row.kind == "model" else "agent",
        share_words(row.pass_1),
        share_words(row.fast_1),
        *("",) * 3,
        str(row.solved),
        str(row.faster),
        *("",) * 12,
    )


def text_lines(board: Board, scope: str = "") -> list[str]:
    """The board for a terminal: a table for every place, the publication's at the end. scope: "category" or "class"."""
    lines: list[str] = []
    for place in board.places:
        lines += [place_words(board, place), *_table(_rows(board, place, scope)), ""]
    lines += [published_words(board), *_table([published_row(row) for row in board.published])]
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


def _table(rows: Sequence[BoardRow]) -> list[str]:
    """Returns the lines of a table without its empty columns."""
    shown = [n for n in range(len(HEADINGS)) if any(row[n] not in ("", "–") for row in rows)]
    columns = tuple(Column[BoardRow](HEADINGS[n], lambda row, n=n: row[n]) for n in shown)  # type: ignore[misc]
    return TextTable(columns).lines(rows)


def markdown(board: Board, scope: str = "") -> str:
    """The board as Markdown. scope: as for `text_lines`."""
    parts: list[str] = []
    for place in board.places:
        parts += [f"### {place_words(board, place)}", "", *_markdown(_rows(board, place, scope)), ""]
    parts += [f"### {published_words(board)}", "", *_markdown([published_row(row) for row in board.published])]
    return "\n".join([*parts, "", DEFINITIONS, ""])


def _markdown(rows: Sequence[BoardRow]) -> list[str]:
    cells = [list(HEADINGS), ["---"] * len(HEADINGS), *(list(row) for row in rows)]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in cells]


def csv_text(board: Board) -> str:
    """Returns a line per player, place and scope. Ends of intervals have their own columns; shares are from 0 to 1."""
    buffer = io.StringIO()
    names = ("pass_1", "pass_k", "paper_1", "fast_1", "fast_1.5", "fast_2", "fast_graph_1", "speedup", "percent")
    head = ["origin", "player", "kind", "scope", "preset", "device", "world", "machine", "problems", "attempts", "k"]
    head += ["solved", "faster", "one_size_only", "usd"]
    head += [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
    head += ["voided", *(f"gap_closed{end}" for end in ("", "_low", "_high")), "no_roofline"]
    head += [*(f"holds_{held}" for held in HOLDS), "improved_on"]
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(head)
    for card in board.scores:
        place = card.place
        scores = [card.pass_1, card.pass_k, card.paper_1, *(card.fast.get(p) for p in ("1", "1.5", "2"))]
        scores += [card.fast_graph.get("1"), card.speedup, card.percent]
        table.writerow(
            [
                *(place.source or "here", card.player, card.kind, card.scope, place.preset, place.device, place.world),
                *(board.machines.get(place.machine, ""), card.problems, card.attempts, card.most_attempts),
                *(card.solved, card.faster, card.one_size_only, round(card.usd, 6)),
                *(cell for score in scores for cell in _ends(score)),
                *(card.voided, *_ends(card.gap_closed), card.no_roofline),
                *(card.holds.get(held, 0) for held in HOLDS),
                improved_words(board, card),
            ]
        )
    for row in board.published:
        scores = [row.pass_1, row.pass_k, row.pass_1, row.fast_1, None, None, None, None, None]
        table.writerow(
            [
                *(
                    "published",
                    row.name,
                    row.kind,
                    "all",
                    "paper",
                    "cuda",
                    "",
                    "",
                    PRINTED_PROBLEMS,
                    "",
                    3,
                    row.solved,
                    row.faster,
                    "",
                    "",
                ),
                *(cell for score in scores for cell in _ends(score)),
                *("",) * 9,
            ]
        )
    return buffer.getvalue()


def _ends(score: Score | None) -> tuple[object, object, object]:
    """The value with the ends of its interval; no ends if they are not known."""
    if score is None:
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
