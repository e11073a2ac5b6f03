"""The start screen: problems by category, your results, and the card of the problem under the cursor."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from arena.errors import ArenaError
from screens.actions import ACTIONS, Scope, bindings
from screens.app_protocol import ask
from screens.base import BaseScreen
from screens.pane_jump import Stop
from screens.widgets.key_line import KeyLine, entitle
from screens.widgets.text_lines import PlainStatic, follow_width

if TYPE_CHECKING:
    from textual.widgets import DataTable

    from arena.records.ranking import Standing
    from problems.specification import Problem
    from screens.app_protocol import AppProtocol
    from screens.picker.problem_table import ProblemRow, ProblemTable
    from screens.widgets.tables import FilterInput

LEGEND = "▲ faster  ≈ same speed  ~ too noisy  ▼ slower  ✗ failed  ·  "
_BARS = " ▁▂▃▄▅▆▇█"


class PickerScreen(BaseScreen):
    """Three panes: categories, table of problems, card."""

    CSS_PATH: ClassVar[Any] = Path(__file__).with_name("screen.tcss")
    CONTENTS_CSS_PATH: ClassVar[Path] = Path(__file__).with_name("contents.tcss")
    SCOPE: ClassVar[Scope] = "problems"
    PLACES: ClassVar[tuple[Stop, ...]] = (
        Stop("c", "#category-pane", "categories"),
        Stop("p", "#problem-pane", "problems"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("problems"),
        Binding("escape", "clear_filter", "clear the filter", show=False),
        Binding("right", "beside('#problem-pane')", "problems", show=False),
    ]

    def __init__(self, parent_app: AppProtocol) -> None:
        super().__init__(parent_app)
        self.problems: list[Problem] = []
        self.standings: dict[int, Standing] = {}
        self.category = ""
        self.machine = ""
        self._own_actions = {"clear_filter", *(action.name for action in ACTIONS if action.scope == "problems")}
        self.HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (76, "-narrow"), (100, "-wide"), (140, "-broad")]
        self.VERTICAL_BREAKPOINTS = [(0, "-low"), (26, "-high")]

    def compose(self) -> ComposeResult:
        with Horizontal(id="top", classes="head"):
            yield PlainStatic("pkb-arena", id="name")
        with Horizontal(id="panes", classes="panes"):
            yield Vertical(id="category-pane", classes="pane")
            with Horizontal(id="problems-and-card"):
                with Vertical(id="problem-pane", classes="pane"):
                    yield PlainStatic("Reading the problems…", id="nothing")
                yield VerticalScroll(id="card-pane", classes="pane", can_focus=False)

    def on_mount(self) -> None:
        self.query_one("#category-pane").border_title = "Parallelism"
        self.query_one("#problem-pane").border_title = "Problems"
        follow_width(self.query_one("#problem-pane"), lambda: self._fill() if self.problems else None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Until problems and engine are loaded, only the keys that work everywhere do something."""
        return action not in self._own_actions or self.parent_app.opened.is_set()

    @property
    def table(self) -> ProblemTable:
        """The table of problems; only after `show`."""
        from screens.picker.problem_table import ProblemTable

        return self.query_one("#problems", ProblemTable)

    @property
    def filter(self) -> FilterInput:
        """The field above the table; only after `show`."""
        from screens.widgets.tables import FilterInput

        return self.query_one(FilterInput)

    async def show(self, problems: list[Problem], standings: dict[int, Standing], machine: str) -> None:
        """Fills the screen; called again when results changed."""
        if not self.query("#problems"):
            await self._furnish()
        self.problems, self.standings, self.machine = problems, standings, machine
        self._show_fault()
        self._show_score()
        self._show_categories()
        self._fill()

    async def _furnish(self) -> None:
        """Fills the panes. The first paint has empty panes, because their contents double its time."""
        from screens.picker.problem_table import ProblemTable
        from screens.widgets.tables import FilterInput

        words = "filter: id, words, collective, class:C, solved, unsolved, slower…"
        box = FilterInput(words, id="filter", of="#problems")
        await self.query_one("#top").mount(PlainStatic(id="machine"), PlainStatic(id="score"))
        await self.query_one("#card-pane").mount(PlainStatic(id="card-preview"))
        await self.query_one("#category-pane").mount(OptionList(id="categories"))
        fault = PlainStatic(id="results-fault")
        await self.query_one("#problem-pane").mount(fault, box, ProblemTable(id="problems"), before="#nothing")
        follow_width(self.query_one("#card-preview"), self._show_card)
        await self.mount(KeyLine())
        self.table.focus()

    def on_screen_resume(self) -> None:
        if self.problems:
            self.start(self.parent_app.refresh_picker(), "standings")

    # --- drawing -------------------------------------------------------------------------------------------

    def _show_fault(self) -> None:
        fault = self.services.results_fault
        line = self.query_one("#results-fault", PlainStatic)
        line.display = fault is not None
        line.update(f"Results are not shown: {fault.one_line}" if fault else "")

    def _show_score(self) -> None:
        from screens import figures  # imported after the first paint, like the table

        self.query_one("#machine", PlainStatic).update(self.machine)
        held = [self.standings[problem.id] for problem in self.problems if problem.id in self.standings]
        solved = sum(standing.solved for standing in held)
        faster = sum(standing.faster for standing in held)
        faster_ones = [standing.best for standing in held if standing.best and standing.faster]
        best = max(faster_ones, key=lambda entry: entry.interval.low if entry.interval else 0.0, default=None)
        words = f"solved {solved} of {len(self.problems)} · faster {faster}"
        self.query_one("#score", PlainStatic).update(words + (f" · best {figures.best_words(best)[0]}" if best else ""))

    def _show_categories(self) -> None:
        catalogue = self.services.catalogue
        assert catalogue is not None
        parts = {"all": self.problems, **catalogue.categories}
        options = [Option(self._category_line(name, problems), id=name) for name, problems in parts.items()]
        categories = self.query_one("#categories", OptionList)
        at = categories.highlighted
        categories.clear_options()
        categories.add_options(options)
        categories.highlighted = min(at or 0, len(options) - 1)

    def _category_line(self, name: str, problems: list[Problem]) -> Content:
        solved = sum(1 for problem in problems if (held := self.standings.get(problem.id)) and held.solved)
        bar = _BARS[max(1, round(8 * solved / len(problems)))] if solved else " "
        return Content.assemble(f"{name:<11}", (f"{len(problems):>3} ", "$muted"), (bar, "$accent"))

    def _rows(self, category: str) -> list[ProblemRow]:
        from screens.picker.problem_table import ProblemRow

        words = self.filter.words
        services = self.services
        best = {problem_id: standing.best for problem_id, standing in services.best.items()}
        rows = (
            ProblemRow(problem, self.standings.get(problem.id), services.house.get(problem.id), best.get(problem.id))
            for problem in self.problems
            if category in ("", problem.category)
        )
        return [row for row in rows if row.matches(words)]

    @on(Input.Changed, "#filter")
    def _filtered(self) -> None:
        self._fill()
        if self.filter.words:  # else the cursor stays on the problem that was found
            self.table.move_cursor(row=0)

    def _fill(self) -> None:
        table = self.table
        rows = self._rows(self.category)
        pane = self.query_one("#problem-pane")
        table.show(rows, max(30, pane.content_size.width or 60))
        table.display = bool(rows)
        nothing = self.query_one("#nothing", PlainStatic)
        nothing.display = not rows
        elsewhere = len(self._rows("")) if self.category and not rows else 0
        others = f" in {self.category}; {elsewhere} of other categories do" if elsewhere else ""
        nothing.update(
            f"No problem matches this filter{others}. esc clears it." if self.problems else "No problems found."
        )
        count = f"{len(rows)} of {len(self.problems)}"
        legend = LEGEND if pane.size.width > len(LEGEND) + len(count) + 10 and self.standings else ""
        pane.border_subtitle = f"{legend}{count}"
        self._show_card()

    def _show_card(self) -> None:
        from screens.picker.card_preview import card_preview

        problem = self.table.current
        pane = self.query_one("#card-pane", VerticalScroll)
        preview = self.query_one("#card-preview", PlainStatic)
        if problem is None:
            pane.border_title = ""
            preview.update("")
            return
        entitle(pane, f"{problem.id} · {problem.slug}")
        preview.update(card_preview(problem, self.services, preview.content_size.width or 42))
        pane.scroll_home(animate=False)

    # --- actions of the user -------------------------------------------------------------------------------

    @on(OptionList.OptionHighlighted, "#categories")
    def _category_chosen(self, event: OptionList.OptionHighlighted) -> None:
        category = "" if event.option.id in (None, "all") else event.option.id
        if category != self.category:
            self.category = category
            self._fill()

    @on(OptionList.OptionSelected, "#categories")
    def _to_table(self) -> None:
        self.table.focus()

    def action_beside(self, name: str) -> None:
        if any(place.name == name for place in self._places()):
            self.go_to(name)

    def action_open(self) -> None:
        if (problem := self.table.current) is not None:
            self.parent_app.open_problem(problem)

    on_data_table_row_highlighted, on_data_table_row_selected = _show_card, action_open

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        self.table.sort_column = event.column_key.value or "id"
        self._fill()

    def action_sort(self) -> None:
        self.table.sort_by_next()
        self._fill()

    def action_filter(self) -> None:
        self.filter.open()

    def action_clear_filter(self) -> None:
        self.filter.close()
        if not self.query_one("#category-pane").display:  # no other widget shows or changes the category
            self.query_one("#categories", OptionList).highlighted = 0
        self.table.focus()

    def action_new(self) -> None:
        from arena.setting_choice import Choice, choose_setting
        from arena.workspace.named_kernels import starter
        from sandbox.machine.devices import kind_of
        from screens.dialogs.questions import Choose, template_sentences

        problem = getattr(self.app.screen, "problem", None) or self.table.current  # the menu starts it at a kernel, too
        if problem is None:
            return
        on_gpus = True
        with suppress(ArenaError):  # a run says why
            on_gpus = kind_of(choose_setting(problem, Choice(), self.services.settings).device).on_gpus
        templates = Choose(f"New kernel · {problem.slug}", template_sentences(on_gpus=on_gpus))
        ask(self, templates, lambda name: self.parent_app.open_problem(problem, text=starter(problem, name)))

    def action_ask_here(self) -> None:
        if (problem := self.table.current) is not None:
            self.parent_app.ask_model(problem)

    def action_duel_here(self) -> None:
        if (problem := self.table.current) is not None:
            self.parent_app.plan_duel(problem)

    def action_board(self) -> None:
        from screens.picker.board import BoardDialog

        ask(self, BoardDialog(self.services), self.parent_app.open_problem)

    def action_sweeps(self) -> None:
        self.parent_app.show_sweeps()

    def action_duel_board(self) -> None:
        self.parent_app.show_duel_board()

    def action_demo(self) -> None:
        self.parent_app.show_demo()

    def action_read_card(self) -> None:
        if (problem := self.table.current) is not None:
            from screens.dialogs import Reader

            self.app.push_screen(Reader(f"{problem.id} · {problem.title}", problem.card))
