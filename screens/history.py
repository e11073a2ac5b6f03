"""Every revision of a kernel that was run, with its verdict; restore one, or compare it with the editor."""

import time
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from arena.store import Entry
from sandbox.events import Interval
from screens import figures
from screens.base import Dialog
from screens.kernel_session import KernelSession
from screens.widgets.diff_view import DiffView
from screens.widgets.foreign import PlainStatic


def entry_line(entry: Entry, here: bool) -> Content:
    """One run as a row: when, verdict, speedup, setting, revision."""
    when = time.strftime("%d %b %H:%M:%S", time.localtime(entry.created))
    words = figures.verdict_words(entry.verdict)
    speed = ""
    colour = figures.verdict_style(entry.verdict)
    if entry.speedup is not None and entry.low is not None and entry.high is not None:
        interval = Interval(median=entry.speedup, low=entry.low, high=entry.high)
        speed = f"{figures.speedup_words(interval, entry.outcome)} {figures.interval_words(interval)}"
    setting = f"{entry.preset} · {entry.dtype} · W={entry.world} · {entry.device}"
    return Content.assemble(
        (f"{when}  ", "$muted"),
        (f"{words:<18}", f"${colour}"),
        (f"{speed:<24}", f"${figures.outcome_style(entry.outcome)}"),
        (f"{entry.sha256[:8]}  ", "$muted"),
        ("in the editor  " if here else "", "$accent"),
        (setting, "$muted"),
    )


class HistoryScreen(Dialog[str | None]):
    """Dismisses with the text to restore."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "back"),
        Binding("space", "compare", "compare with the editor"),
    ]

    def __init__(self, session: KernelSession, text: str) -> None:
        super().__init__()
        self.session = session
        self.text = text
        self.entries: list[Entry] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog large") as dialog:
            dialog.border_title = f"History · {self.session.problem.slug}"
            dialog.border_subtitle = "enter restores · space compares with the editor · esc back"
            yield OptionList(id="runs")
            yield PlainStatic("reading…", id="nothing")
            yield DiffView(id="compare")

    def on_mount(self) -> None:
        self.query_one("#compare").display = False
        self.run_worker(self._read(), exit_on_error=False)

    async def _read(self) -> None:
        import asyncio

        from arena.workspace import content_hash

        store, problem = self.session.services.store, self.session.problem
        self.entries = await asyncio.to_thread(store.history, problem.id)
        here = content_hash(self.text)
        runs = self.query_one("#runs", OptionList)
        runs.add_options(
            Option(entry_line(entry, entry.sha256 == here), id=f"run-{number}")
            for number, entry in enumerate(self.entries)
        )
        nothing = self.query_one("#nothing", PlainStatic)
        nothing.display = not self.entries
        runs.display = bool(self.entries)
        nothing.update("No run yet. Every kernel that you run is kept here, with its verdict and speedup.")
        if self.entries:
            runs.highlighted = 0
            runs.focus()

    def _text_of(self, number: int | None) -> str | None:
        if number is None or number >= len(self.entries):
            return None
        text = self.session.services.workspace.revision(self.entries[number].sha256)
        if text is None:
            self.app.notify(
                "The text of this revision is not in the workspace.", severity="warning", markup=False
            )
        return text

    @on(OptionList.OptionSelected, "#runs")
    def _selected(self, event: OptionList.OptionSelected) -> None:
        text = self._text_of(event.option_index)
        if text is not None:
            self.dismiss(text)

    @on(OptionList.OptionHighlighted, "#runs")
    def _highlighted(self) -> None:
        if self.query_one("#compare").display:
            self._compare()

    def action_compare(self) -> None:
        view = self.query_one("#compare", DiffView)
        view.display = not view.display
        if view.display:
            self._compare()

    def _compare(self) -> None:
        number = self.query_one("#runs", OptionList).highlighted
        text = self._text_of(number)
        if text is not None and number is not None:
            self.query_one("#compare", DiffView).show(
                text, self.text, self.entries[number].sha256[:8], "editor"
            )
