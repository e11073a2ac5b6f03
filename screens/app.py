"""The app: its start, its end, and what is loaded after the first paint."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from arena.errors import with_advice
from screens.keymap import keymap_fault
from screens.navigation import NavigatingApp
from screens.picker.screen import PickerScreen
from screens.services import Services

if TYPE_CHECKING:
    from arena.runs.run_request import Notice
    from problems.specification import Problem

FULL_PASS_S = 60.0
WIDGETS_STYLES = Path(__file__).parent / "widgets" / "widgets.tcss"
NEVER = 1_000_000
"""Collections of younger objects before the garbage collector makes a full one by itself."""


class ArenaApp(NavigatingApp):
    """pkb-arena in a terminal."""

    TITLE = "pkb-arena"
    # Textual does not read the stylesheet of a default screen. Parsing what the first paint does not need would delay it.
    CSS_PATH: ClassVar[Any] = [Path(__file__).with_name("app.tcss"), PickerScreen.CSS_PATH]
    LATER_CSS: ClassVar[Any] = [WIDGETS_STYLES, PickerScreen.CONTENTS_CSS_PATH]

    def __init__(self, services: Services, problem: str = "", kernel: Path | None = None) -> None:
        """`problem` (id, slug or stem) opens at once, with `kernel` if one is given."""
        super().__init__(services)
        self._problem, self._kernel = problem, kernel

    def get_default_screen(self) -> PickerScreen:
        return self.picker

    def on_mount(self) -> None:
        self.call_after_refresh(lambda: self.picker.start(self._open(), "open"))

    # --- after the first paint -----------------------------------------------------------------------------

    async def _open(self) -> None:
        services = self.services
        self.stylesheet.read_all(self.LATER_CSS)  # parsed when the first widget is mounted
        try:
            catalogue = await services.read()
            await self.fill_picker()
            services.make_engine().subscribe_notices(self._notice)
            self.opened.set()
            self.picker.refresh_bindings()
        finally:
            gc.freeze()  # objects made so far stay: the collector need not scan them (80 ms) in the middle of a run
            gc.enable()
            # A full collection blocks the app for 40 to 90 ms. Make one a minute, not several in a minute of typing.
            gc.set_threshold(*gc.get_threshold()[:2], NEVER)
            self.set_interval(FULL_PASS_S, self._collect)
        damaged = [services.store.damaged] if services.results_fault is None and services.store.damaged else []
        for broken in [*damaged, *map(str, catalogue.broken), *map(str, self.theme_errors)]:
            self.notify(broken, severity="warning", timeout=15, markup=False)
        if fault := keymap_fault(services.settings.keymap):
            text = f"keymap: {fault} → settings, then keymap, shows every action and its key"
            self.notify(text, severity="warning", timeout=15, markup=False)
        if self._problem:
            self.open_problem(catalogue.find(self._problem), self._kernel)
        elif services.first_start and catalogue.problems:
            self._welcome(catalogue.problems)

    def _collect(self) -> None:
        """Makes a full collection. Textual takes no built-in function as a callback."""
        gc.collect()

    def _welcome(self, problems: list[Problem]) -> None:
        from arena.machine.facts import machine_words
        from screens.picker.welcome import Welcome

        first = problems[0]

        def answered(run: bool | None) -> None:
            self.save_settings(self.services.settings)
            if run:
                self.open_problem(first, run_at_once=True)

        welcome = Welcome(machine_words(self.services.settings), len(problems), f"{first.id} · {first.title}")
        self.push_screen(welcome, answered)

    def _notice(self, notice: Notice) -> None:
        self.notify(with_advice(notice.message, notice.advice), severity="warning", timeout=12, markup=False)

    async def end(self) -> None:
        await self.services.close()


def run_app(problem: str = "", kernel: Path | None = None) -> int:
    """Runs the app until it is left. Returns the exit code.

    Raises:
        ArenaError: the settings or the workspace cannot be used; nothing was drawn.
    """
    from arena.paths import find_paths

    return ArenaApp(Services(find_paths()), problem, kernel).run_to_end()
