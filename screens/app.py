"""The app: opens screens, hands them the services, and leaves the terminal as it found it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App
from textual.binding import BindingType

from screens.actions import ActionCommands, ProblemCommands, bindings, unknown_names
from screens.picker import PickerScreen
from screens.services import Services
from screens.themes import DEFAULT, FOLDER, VARIABLE_DEFAULTS, load_themes

if TYPE_CHECKING:
    from arena.duel.journal import DuelRecord
    from arena.errors import ArenaError
    from arena.run_request import Notice
    from arena.settings import Settings
    from problems.specification import Problem
    from screens.duel_live import DuelPlan

LEAVE_S = 10.0
"""From a signal to the end of the process, at the latest; the referee ends by itself when its pipe closes."""
TERMINAL_CHECK_S = 5.0


class ArenaApp(App[None]):
    """pkb-arena in a terminal."""

    TITLE = "pkb-arena"
    CSS_PATH: ClassVar[Any] = [FOLDER / "base.tcss", FOLDER / "picker.tcss"]
    COMMANDS: ClassVar[Any] = {ActionCommands, ProblemCommands}
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("everywhere")]

    def __init__(self, services: Services, problem: str = "", kernel: Path | None = None) -> None:
        """`problem` (id, slug or stem) opens at once, with `kernel` if one is given."""
        super().__init__()
        self.services = services
        self.opened = asyncio.Event()
        """Set once catalogue, index and engine are there."""
        self.faults: list[str] = []
        """Tracebacks of our own mistakes; the app stays up."""
        self.picker = PickerScreen()
        self._problem, self._kernel = problem, kernel
        themes, self._theme_errors = load_themes((FOLDER, services.paths.config / "themes"))
        for theme in themes:
            self.register_theme(theme)
        self._theme_names = [theme.name for theme in themes]
        self.theme = services.settings.theme if services.settings.theme in self.available_themes else DEFAULT
        self.set_keymap(services.settings.keymap)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLE_DEFAULTS

    def get_default_screen(self) -> PickerScreen:
        return self.picker

    def on_mount(self) -> None:
        if sys.platform != "win32":
            for number in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, partial(self._signalled, number))
            if sys.__stdin__ is not None and sys.__stdin__.isatty():
                self.set_interval(TERMINAL_CHECK_S, self._check_terminal)
        self.call_after_refresh(lambda: self.picker.start(self._open(), "open"))

    def _signalled(self, number: signal.Signals) -> None:
        """Leaves in order; a terminal that is gone can hold that up, so there is an end to the patience."""
        last_resort = threading.Timer(LEAVE_S, os._exit, (128 + number,))
        last_resort.daemon = True
        last_resort.start()
        self.exit(return_code=128 + number)

    def _check_terminal(self) -> None:
        """A terminal can go without a word (no hang-up signal); nobody would ever end this app then."""
        import termios

        try:
            termios.tcgetattr(0)
        except termios.error:
            self._signalled(signal.SIGHUP)

    # --- after the first paint -----------------------------------------------------------------------------

    async def _open(self) -> None:
        services = self.services
        catalogue = await services.open()
        services.engine.subscribe_notices(self._notice)
        self.opened.set()
        await self._fill_picker()
        gc.freeze()  # what is there now stays: the collector need not walk it (80 ms) in the middle of a run
        for broken in [*map(str, catalogue.broken), *map(str, self._theme_errors)]:
            self.notify(broken, severity="warning", timeout=15, markup=False)
        if unknown := unknown_names(services.settings.keymap):
            text = f"keymap: there is no action {unknown[0]!r}; F1 lists them"
            self.notify(text, severity="warning", timeout=15, markup=False)
        if self._problem:
            self.open_problem(catalogue.find(self._problem), self._kernel)
        elif services.first_start and catalogue.problems:
            self._welcome(catalogue.problems)

    def _welcome(self, problems: list[Problem]) -> None:
        from screens.welcome import Welcome

        first = problems[0]

        def answered(run: bool | None) -> None:
            self.save_settings(self.services.settings)
            if run:
                self.open_problem(first, run_at_once=True)

        welcome = Welcome(machine_words(self.services.settings), len(problems), f"{first.id} · {first.title}")
        self.push_screen(welcome, answered)

    async def _fill_picker(self) -> None:
        catalogue = self.services.catalogue
        if catalogue is not None:
            words = await asyncio.to_thread(machine_words, self.services.settings)  # a GPU's driver may sleep
            await self.picker.show(catalogue.problems, self.services.standings, words)

    async def refresh_picker(self) -> None:
        """Reads the standings again and shows them."""
        await self.services.refresh_standings()
        await self._fill_picker()

    def _notice(self, notice: Notice) -> None:
        text = f"{notice.message} → {notice.advice}" if notice.advice else notice.message
        self.notify(text, severity="warning", timeout=12, markup=False)

    def _complain(self, error: ArenaError) -> None:
        from screens.complaints import explain

        self.notify(explain(error), severity="error", timeout=10, markup=False)

    # --- what people do ------------------------------------------------------------------------------------

    def open_problem(
        self, problem: Problem, kernel: Path | None = None, *, run_at_once: bool = False, template: str = ""
    ) -> None:
        """Opens the arena for a problem; one that is open is left first. `template` goes into the editor."""
        from screens.arena import ArenaScreen

        if isinstance(self.screen, ArenaScreen):
            self.pop_screen()
        self.push_screen(
            ArenaScreen(self.services, problem, kernel, run_at_once=run_at_once, template=template)
        )

    def plan_duel(self, problem: Problem) -> None:
        """Asks who plays whom, and starts the duel."""
        from arena.errors import ArenaError
        from arena.machine import choose_device
        from screens.duel_setup import DuelSetup

        def answered(plan: DuelPlan | None) -> None:
            if plan is not None:
                self.play_duel(problem, plan)

        try:
            device = choose_device(self.services.settings.device)
        except ArenaError as error:
            self._complain(error)
            return
        self.push_screen(DuelSetup(problem, list(self.services.settings.models), device), answered)

    def play_duel(self, problem: Problem, plan: DuelPlan) -> None:
        """Opens the duel; an arena that is open is left first: its draft is kept, and the judge is needed here."""
        from arena.errors import ArenaError
        from screens.arena import ArenaScreen
        from screens.duel_live import LiveDuelScreen

        if isinstance(self.screen, ArenaScreen):
            self.pop_screen()
        try:
            self.push_screen(LiveDuelScreen(self.services, problem, plan))
        except ArenaError as error:
            self._complain(error)

    def show_duel_board(self) -> None:
        """Shows ratings and duels; one of them can be replayed."""
        from screens.duel_board import DuelBoard
        from screens.duel_replay import ReplayDuelScreen

        def answered(record: DuelRecord | None) -> None:
            if record is not None:
                path = self.services.paths.duels / f"{record.header.duel_id}.jsonl"
                self.push_screen(ReplayDuelScreen(self.services, path, record.header))

        self.push_screen(DuelBoard(self.services), answered)

    def save_settings(self, settings: Settings) -> None:
        """Takes settings over and writes the file; says what went wrong."""
        from arena.errors import ArenaError
        from arena.settings import save_settings

        self.services.settings = settings
        self.services.first_start = False
        if settings.theme in self.available_themes:
            self.theme = settings.theme
        self.set_keymap(settings.keymap)
        try:
            save_settings(settings, self.services.paths)
        except ArenaError as error:
            self._complain(error)

    def action_help(self) -> None:
        from screens.help import HelpScreen

        self.push_screen(HelpScreen(self.services.settings.keymap))

    def action_settings(self) -> None:
        from screens.settings import SettingsScreen

        def answered(settings: Settings | None) -> None:
            if settings is not None:
                self.save_settings(settings)

        file = str(self.services.paths.settings_file)
        self.push_screen(SettingsScreen(self.services.settings, self._theme_names, file), answered)

    def action_doctor(self) -> None:
        from screens.doctor import DoctorScreen

        self.push_screen(DoctorScreen())

    def action_next_theme(self) -> None:
        names = self._theme_names
        self.theme = names[(names.index(self.theme) + 1) % len(names)] if self.theme in names else names[0]
        self.notify(f"theme: {self.theme}", timeout=2, markup=False)


def machine_words(settings: Settings) -> str:
    """Where kernels will run, in a few words."""
    from arena.errors import ArenaError
    from arena.machine import choose_device, visible_gpus

    try:
        device = choose_device(settings.device)
    except ArenaError as error:
        return f"! {error}"
    if device == "cuda":
        return f"{visible_gpus()} GPUs · NCCL"
    return f"CPU ranks over gloo · {os.cpu_count()} cores"


def run_app(problem: str = "", kernel: Path | None = None) -> int:
    """Runs the app until it is left. Returns the exit code.

    Raises:
        ArenaError: settings or workspace stand in the way; nothing was drawn.
    """
    from arena.paths import find_paths

    services = Services(find_paths())
    app = ArenaApp(services, problem, kernel)

    async def live() -> None:
        try:
            await app.run_async()
        finally:
            await services.close()  # after the terminal is back: nobody waits in front of a dead screen

    asyncio.run(live())
    return app.return_code or 0
