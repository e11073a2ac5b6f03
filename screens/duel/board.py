"""The duel board: ratings, and the duels that were played; enter replays one."""

import asyncio
import time
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from arena.duel.card import result_words
from arena.duel.events import short_name
from arena.duel.journal import ALL, DuelRecord, Rating, abandoned_duels, ratings, read_duels
from arena.records.voids import read_voids
from arena.words.untrusted_text import printable
from screens import figures
from screens.dialogs import Dialog
from screens.services import Services
from screens.widgets.text_lines import PlainStatic, follow_width, hanging

_FIGURES = 33
"""Columns of the figures behind a name."""
_ONE_ROW_FROM = 110
"""Columns from which a duel fits into one row."""


class DuelBoard(Dialog[DuelRecord | None]):
    """Dismisses with the duel to replay."""

    CSS_PATH: ClassVar[Any] = [*Dialog.CSS_PATH, Path(__file__).with_name("board.tcss")]
    TO_READ = True
    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "category", "next category")]

    def __init__(self, services: Services) -> None:
        super().__init__()
        self.services = services
        self.records: list[DuelRecord] = []
        self.found: list[Rating] = []
        self.category = ALL

    def compose(self) -> ComposeResult:
        with self.frame("Duels", "esc back", classes="large"):
            yield PlainStatic("reading…", id="ratings")
            yield OptionList(id="duels")

    def on_mount(self) -> None:
        follow_width(self.query_one("#ratings"), lambda: self._show() if self.records else None)
        self.run_worker(self._read(), exit_on_error=False)

    async def _read(self) -> None:
        voids = await asyncio.to_thread(read_voids, self.services.paths.voids)
        folder = self.services.paths.duels
        decided, _ = await asyncio.to_thread(read_duels, folder, voids)
        self.records = [*decided, *await asyncio.to_thread(abandoned_duels, folder)]
        self.records.sort(key=lambda record: record.header.created, reverse=True)
        self.found = ratings(decided) if len(decided) > 1 else []  # one duel rates nobody
        duels = self.query_one("#duels", OptionList)
        duels.display = bool(self.records)
        if self.records:
            self.name_keys(f"enter replays · {'c next category · ' * bool(self.found)}esc back")
        self._show()
        duels.focus()

    def _show(self) -> None:
        duels = self.query_one("#duels", OptionList)
        width = self._width
        at = duels.highlighted or 0
        duels.clear_options()
        duels.add_options(Option(duel_row(record, width), id=f"duel-{n}") for n, record in enumerate(self.records))
        if self.records:
            duels.highlighted = at
        self._show_ratings()

    @property
    def _width(self) -> int:
        """Cells of a row."""
        return self.query_one("#ratings").content_size.width

    def _show_ratings(self) -> None:
        shown = [rating for rating in self.found if rating.category == self.category]
        if not shown:
            none = f"No duels yet. Press {self.key_words('duel_here')} on a problem to start one."
            words = "Ratings need two decided duels." if self.records else none
            self.query_one("#ratings", PlainStatic).update(words)
            return
        names = max(15, min(34, self._width - _FIGURES))
        title = figures.cut(f"Ratings · {self.category}", names)
        head = f"{title:<{names}}{'rating':>7}  {'95 %':<5}{'won':>6}{'drawn':>7}{'lost':>6}\n"
        rows = [
            f"{place:>3}  {figures.cut(printable(short_name(r.player)), names - 6):<{names - 5}}"
            f"{r.rating:>7.0f}  ±{r.plus_minus:<4.0f}{r.won:>6}{r.drawn:>7}{r.lost:>6}"
            for place, r in enumerate(shown[:12], 1)
        ]
        self.query_one("#ratings", PlainStatic).update(Content.assemble((head, "$muted"), "\n".join(rows)))

    def action_category(self) -> None:
        known = list(dict.fromkeys(rating.category for rating in self.found)) or [ALL]
        here = known.index(self.category) if self.category in known else -1
        self.category = known[(here + 1) % len(known)]
        self._show_ratings()

    @on(OptionList.OptionSelected, "#duels")
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self.records[event.option_index])


def duel_row(record: DuelRecord, width: int) -> Content:
    """Returns the rows of a duel: time and problem, then players and result, below it if the width is small."""
    header = record.header
    when = time.strftime("%d %b %H:%M", time.localtime(header.created))
    problem = Content.assemble((f"{when}  ", "$muted"), f"{header.problem_id:>3} {figures.cut(header.slug, 28)}")
    played = Content.assemble(
        (f"{printable(header.left.short)} vs {printable(header.right.short)}  ", "$accent"),
        (printable(result_words(record)), "$muted" if record.ended is not None else "$warning"),
    )
    beside = width >= _ONE_ROW_FROM
    rows = hanging(problem, played, width, 47) if beside else [problem, *hanging(Content(""), played, width, 2)]
    if record.voided is not None:
        note = Content.styled(printable(record.voided.words), "$warning")
        rows = [*(row.stylize("strike") for row in rows), *hanging(Content(""), note, width, 2)]
    return Content("\n").join(rows)
