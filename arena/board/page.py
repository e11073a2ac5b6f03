"""A board as one HTML file without external references: tables, plots, definitions; light and dark."""

import html
import time
from collections.abc import Sequence

from arena.board import drawing
from arena.board.gathering import Board
from arena.board.outcomes import ResultPlace
from arena.board.tables import (
    DEFINITIONS,
    HEADINGS,
    BoardRow,
    bound_words,
    card_row,
    place_words,
    published_row,
    published_words,
    share_words,
)

_STYLE = """
:root { color-scheme: light dark; --ink:#1f2328; --muted:#68707a; --rule:#d5d9de; --paper:#ffffff; --page:#f6f7f9;
 --model:#2f6fde; --agent:#8250df; --person:#1a7f52; --house:#bc5a00; --baseline:#7d8590;
 --shade0:#eef3fb; --shade1:#b9d0f5; --shade2:#7ba7ea; --shade3:#2f6fde; }
@media (prefers-color-scheme: dark) { :root { --ink:#e6e9ee; --muted:#9aa3ad; --rule:#343b44; --paper:#171b21; --page:#0f1216;
 --model:#6ea2ff; --agent:#b08cff; --person:#4cc38a; --house:#f0a050; --baseline:#98a1ab;
 --shade0:#1e2733; --shade1:#27436f; --shade2:#2f5aa8; --shade3:#8fb7ff; } }
* { box-sizing: border-box } body { margin:0; background:var(--page); color:var(--ink);
 font:15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif }
main { max-width: 1120px; margin: 0 auto; padding: 40px 24px 64px } h1 { font-size:28px; margin:0 0 4px }
h2 { font-size:18px; margin:40px 0 4px } h3 { font-size:14px; margin:24px 0 6px; color:var(--muted); font-weight:600 }
p, .note { color:var(--muted); margin:0 0 12px; max-width:80ch }
.card { background:var(--paper); border:1px solid var(--rule); border-radius:10px; padding:16px; overflow-x:auto; margin:12px 0 }
.card svg { width:100%; height:auto; font-family:inherit } table { border-collapse:collapse; font-size:13px; width:100%;
 font-variant-numeric:tabular-nums } th, td { text-align:left; padding:6px 10px; white-space:nowrap;
 border-bottom:1px solid var(--rule) } th { color:var(--muted); font-weight:600; cursor:pointer; user-select:none }
tr:last-child td { border-bottom:0 } td:first-child { font-weight:600 } tr.published td { color:var(--muted); font-style:italic }
td small { color:var(--muted); font-size:11px } .kind { display:inline-block; width:9px; height:9px; border-radius:50%;
 margin-right:7px } pre { white-space:pre-wrap; font:12px/1.5 ui-monospace, monospace; color:var(--muted) }
"""
_SCRIPT = """
for (const head of document.querySelectorAll("th")) head.onclick = () => {
  const body = head.closest("table").tBodies[0], at = head.cellIndex, down = head.dataset.down !== "1";
  const value = row => { const t = row.cells[at].textContent, n = parseFloat(t); return isNaN(n) ? t : n; };
  const rows = [...body.rows].sort((a, b) => { const x = value(a), y = value(b);
    return (typeof x === typeof y ? (x > y) - (x < y) : typeof x === "number" ? 1 : -1) * (down ? -1 : 1); });
  head.dataset.down = down ? "1" : "0"; body.append(...rows);
};
"""


def page(board: Board) -> str:
    """Returns the text of the HTML file.

    Raises:
        MachineError: matplotlib is not installed.
    """
    made = time.strftime("%d %B %Y", time.gmtime(board.created))
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>pkb-arena board</title><style>{_STYLE}</style></head><body><main>",
        "<h1>pkb-arena board</h1>",
        f"<p>Multi-GPU kernels for {board.problems} problems of ParallelKernelBench. {made}, pkb-arena {_text(board.arena)}.</p>",
        _legend(),
    ]
    for place in board.places:
        parts.append(f"<h2>{_text(_heading(place))}</h2><p>{_text(place_words(board, place))}</p>")
        parts.append(_table(board, place))
        for title, svg in (
            (
                "Right, and right and faster, of one attempt. Lines: 95 % intervals. Hollow: published.",
                drawing.shares_plot(board, place),
            ),
            (
                "Geometric mean of speedups over the baseline, over the problems that a player solved",
                drawing.speedups_plot(board, place),
            ),
            (
                "fast_p: share of problems that are right and more than p times as fast",
                drawing.curve_plot(board, place),
            ),
            ("Solved of tried, by category", drawing.categories_plot(board, place)),
        ):
            if svg:
                parts.append(f'<h3>{title}</h3><div class="card">{drawing.with_theme(svg)}</div>')
        parts.append(_bound_table(board, place))
    if not board.places:
        parts.append(
            "<h2>No results yet</h2><p>pkb-arena sweep --players baseline,house makes some.</p>" + _table(board, None)
        )
    parts += [
        *(f"<p>Not on this page: {_text(left_out.what)}.</p>" for left_out in board.left_out),
        f"<h2>What the numbers mean</h2><pre>{_text(DEFINITIONS)}</pre>",
        f"<p>{_text(published_words(board))}.</p></main><script>{_SCRIPT}</script></body></html>",
    ]
    return "\n".join(parts)


def _heading(place: ResultPlace) -> str:
    ranks = f"{place.world} rank{'s' if place.world != 1 else ''}"
    return f"{place.preset} · {ranks} · {place.device}" + (f" · from elsewhere: {place.source}" if place.source else "")


def _legend() -> str:
    kinds = "".join(
        f'<span class="kind" style="background:var(--{kind})"></span>{kind}&emsp;' for kind in drawing.COLOURS
    )
    return f'<p class="note">{kinds}</p>'


def _table(board: Board, place: ResultPlace | None) -> str:
    cards = [card for card in board.cards if card.place == place]
    rows = [(card.kind, card_row(board, card)) for card in cards]
    rows += [("published", published_row(row)) for row in board.published]
    shown = [n for n in range(len(HEADINGS)) if n != 1 and any(row[n] not in ("", "–") for _, row in rows)]
    head = "".join(f"<th>{_text(HEADINGS[n])}</th>" for n in shown)
    body = "".join(_line(kind, row, shown) for kind, row in rows)
    return f'<div class="card"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _bound_table(board: Board, place: ResultPlace) -> str:
    """Returns the table of the scores against the hardware by category; empty if there are none."""
    found = [card for card in board.scores if card.place == place and card.scope.startswith("category:")]
    cards = [card for card in found if card.percent is not None]
    if not cards:
        return ""
    head = ("category", "player", "problems", "of bound", "gap closed", "no roofline")
    rows = [
        (
            *(card.scope.partition(":")[2], card.player, str(card.percent.problems if card.percent else 0)),
            *(bound_words(card.percent), share_words(card.gap_closed), str(card.no_roofline or "")),
        )
        for card in cards
    ]
    cells = "".join(f"<tr>{''.join(f'<td>{_with_interval(text)}</td>' for text in row)}</tr>" for row in rows)
    heads = "".join(f"<th>{name}</th>" for name in head)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table>"
    return f'<h3>Against the hardware, by category</h3><div class="card">{table}</div>'


def _line(kind: str, row: BoardRow, shown: Sequence[int]) -> str:
    cells = "".join(f"<td>{_cell(kind, n, row[n])}</td>" for n in shown)
    return f'<tr class="{kind}">{cells}</tr>'


def _cell(kind: str, number: int, text: str) -> str:
    if number == 0:
        mark = f'<span class="kind" style="background:var(--{kind})"></span>' if kind != "published" else ""
        return f"{mark}{_text(text)}{' (published)' if kind == 'published' else ''}"
    return _with_interval(text)


def _with_interval(text: str) -> str:
    value, bracket, rest = _text(text).partition(" [")
    return f"{value} <small>[{rest}</small>" if bracket else value


def _text(text: str) -> str:
    return html.escape(text)
