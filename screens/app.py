"""The app: opens screens and gives them the services."""

from __future__ import annotations

import asyncio
import gc
import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace
from textual.binding import Binding, BindingType
from textual.screen import Screen

from screens.actions import Scope, bindings, key_of, short_key_words
from screens.base import BaseScreen
from screens.complaints import explain
from screens.keymap import as_sent, keymap_fault
from screens.picker.screen import PickerScreen
from screens.services import Services
from screens.terminal_app import TerminalApp
from screens.themes import DEFAULT, FOLDER, VARIABLE_DEFAULTS, load_themes

if TYPE_CHECKING:
    from arena.duel.journal import DuelRecord
    from arena.runs.origin import Origin
    from arena.runs.run_request import Notice
    from arena.setting_choice import Choice
    from arena.settings import Settings
    from problems.specification import Problem
    from sandbox.protocol.kernel_files import Kernel
    from screens.app_protocol import DuelPlan
    from screens.model.model_session import ModelPlan

FULL_PASS_S = 60.0
WIDGETS_STYLES = Path(__file__).parent / "widgets" / "widgets.tcss"
NEVER = 1_000_000
"""Passes over younger objects between two full ones that the garbage collector makes by itself."""


def _palette() -> Any:
    """What the command palette offers: imported when it is opened."""
    from screens import palette

    return palette


class ArenaApp(TerminalApp):
    """pkb-arena in a terminal."""

    TITLE = "pkb-arena"
    # Textual does not read the stylesheet of a default screen. Parsing what the first paint does not need would delay it.
    CSS_PATH: ClassVar[Any] = [Path(__file__).with_name("app.tcss"), PickerScreen.CSS_PATH]
    LATER_CSS: ClassVar[Any] = [WIDGETS_STYLES, PickerScreen.CONTENTS_CSS_PATH]
    COMMANDS: ClassVar[Any] = {
        lambda: _palette().ActionCommands,
        lambda: _palette().ProblemCommands,
        lambda: _palette().ThemeCommands,
    }
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("everywhere")]

    _theme_read = ""
    """The theme that the stylesheet has."""

    def __init__(self, services: Services, problem: str = "", kernel: Path | None = None) -> None:
        """`problem` (id, slug or stem) opens at once, with `kernel` if one is given."""
        super().__init__()
        self.services = services
        self.opened = asyncio.Event()
        """Set once catalogue, index and engine are there."""
        self.faults: list[str] = []
        """Tracebacks of our own mistakes; the app stays up."""
        self.picker = PickerScreen(self)
        self._problem, self._kernel = problem, kernel
        themes, self._theme_errors = load_themes((FOLDER, services.paths.config / "themes"))
        for theme in themes:
            self.register_theme(theme)
        self.theme_names = [theme.name for theme in themes]
        self.theme = services.settings.theme if services.settings.theme in self.available_themes else DEFAULT
        self._theme_read = self.theme
        self.stylesheet.set_variables(self.get_css_variables())
        self.set_keymap(as_sent(services.settings.keymap))

    def refresh_css(self, animate: bool = True) -> None:
        """Reads the stylesheet again for another theme. Textual does so for the first one, too: 20 ms before the first paint."""
        if self.theme != self._theme_read:
            self._theme_read = self.theme
            super().refresh_css(animate)

    def get_css_variables(self) -> dict[str, str]:
        """None before the person's theme is known: Textual works out those of its default theme first, which nobody sees."""
        return super().get_css_variables() if self._theme_read else {}

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLE_DEFAULTS

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
            await self._fill_picker()
            services.make_engine().subscribe_notices(self._notice)
            self.opened.set()
            self.picker.refresh_bindings()
        finally:
            gc.freeze()  # what is there now stays: the collector need not walk it (80 ms) in the middle of a run
            gc.enable()
            # Full passes stop everything for 40 to 90 ms: one a minute, instead of several within a minute of typing.
            gc.set_threshold(*gc.get_threshold()[:2], NEVER)
            self.set_interval(FULL_PASS_S, self._collect)
        damaged = [services.store.damaged] if services.store.damaged else []
        for broken in [*damaged, *map(str, catalogue.broken), *map(str, self._theme_errors)]:
            self.notify(broken, severity="warning", timeout=15, markup=False)
        if fault := keymap_fault(services.settings.keymap):
            text = f"keymap: {fault} → settings, then keymap, shows every action and its key"
            self.notify(text, severity="warning", timeout=15, markup=False)
        if self._problem:
            self.open_problem(catalogue.find(self._problem), self._kernel)
        elif services.first_start and catalogue.problems:
            self._welcome(catalogue.problems)

    def _collect(self) -> None:
        """Textual takes no built-in function for a callback."""
        gc.collect()

    def _welcome(self, problems: list[Problem]) -> None:
        from screens.picker.welcome import Welcome

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

    def record_fault(self, error: Exception) -> None:
        self.faults.append("".join(traceback.format_exception(error)))

    # --- what people do ------------------------------------------------------------------------------------

    def open_problem(
        self, problem: Problem, kernel: Path | None = None, *, run_at_once: bool = False, text: str = ""
    ) -> None:
        """Opens the kernel screen for a problem; one that is open is left first. `text` goes into the editor, unsaved."""
        from screens.kernel.screen import KernelScreen

        if isinstance(self.screen, KernelScreen):
            self.pop_screen()
        self.push_screen(KernelScreen(self, problem, kernel, run_at_once=run_at_once, text=text))

    def ask_model(self, problem: Problem, choice: Choice | None = None, origin: Origin | None = None) -> None:
        """Asks which model writes for the problem, in the setting of the choice, and lets it. origin: the kernel to improve."""
        self.picker.start(self._ask_model(problem, choice, origin), "ask")

    async def _ask_model(self, problem: Problem, choice: Choice | None, origin: Origin | None = None) -> None:
        from arena.players.player import PlayerSetup
        from arena.setting_choice import Choice, choose_setting
        from arena.settings import load_settings
        from screens.dialogs.questions import Question
        from screens.kernel.screen import KernelScreen
        from screens.model.screen import ModelScreen
        from screens.model.setup import NO_MODEL, ModelSetup

        services = self.services
        read = await asyncio.to_thread(load_settings, services.paths)  # models may have come since the start
        services.settings = replace(services.settings, models=read.models)
        if not read.models:
            question = Question("Ask a model", NO_MODEL, yes="open the settings file", no="back")
            if await self.push_screen_wait(question):
                await self._edit_models(problem, choice)
            return
        setting = choose_setting(problem, choice or Choice(), services.settings)

        def answered(plan: ModelPlan | None) -> None:
            if plan is None:
                return
            if isinstance(self.screen, KernelScreen):
                self.screen.rest()
            self.push_screen(ModelScreen(self, problem, setting, plan))

        assert services.catalogue is not None
        setup = PlayerSetup(services.settings, services.catalogue, services.paths)
        self.push_screen(ModelSetup(problem, setup, origin), answered)

    async def _edit_models(self, problem: Problem, choice: Choice | None) -> None:
        """Opens the settings file at its models; asks one if there is one then."""
        from arena.settings import MODELS_HEAD, save_settings
        from screens.kernel.source.outside_editor import edit_outside

        services, path = self.services, self.services.paths.settings_file
        if not path.exists() or MODELS_HEAD not in path.read_text(encoding="utf-8"):
            await asyncio.to_thread(save_settings, services.settings, services.paths)
        before = path.read_text(encoding="utf-8").partition(MODELS_HEAD)[0]
        if trouble := await edit_outside(self, services.settings, path, before.count("\n") + 1):
            self.picker.complain(f"{trouble} → edit {path}")
        elif "\n[models." in path.read_text(encoding="utf-8"):
            await self._ask_model(problem, choice)

    async def open_beside(self, problem: Problem, path: Path, kernel: Kernel) -> None:
        """Writes a kernel as a new one beside a path, and opens it."""
        self.open_problem(problem, await asyncio.to_thread(self.services.workspace.put_beside, path, kernel))

    def take_over(self, problem: Problem, kernel: Kernel) -> None:
        """Leaves the screen of a model; its kernel goes into the editor, unsaved."""
        from screens.kernel.screen import KernelScreen

        self.pop_screen()
        if isinstance(self.screen, KernelScreen):
            self.screen.take_over(kernel)
        elif kernel.files:
            path = self.services.workspace.kernel_path(problem)
            self.picker.start(self.open_beside(problem, path, kernel), "open")
        else:
            self.open_problem(problem, text=kernel.source)

    def plan_duel(self, problem: Problem) -> None:
        """Asks for the players, and starts the duel."""
        self.picker.start(self._plan_duel(problem), "duel")

    async def _plan_duel(self, problem: Problem) -> None:
        from screens.duel.setup import duel_setup

        plan = await self.push_screen_wait(await duel_setup(self.services, problem))
        if plan is not None:
            self.play_duel(problem, plan)

    def play_duel(self, problem: Problem, plan: DuelPlan) -> None:
        """Opens the duel; a kernel screen that is open is left first: its draft is kept, and the duel needs its judge."""
        self.picker.start(self._play_duel(problem, plan), "duel")

    async def _play_duel(self, problem: Problem, plan: DuelPlan) -> None:
        from screens.duel.live import LiveDuelScreen, make_players
        from screens.kernel.screen import KernelScreen

        # A keyring may be asked, and a jail tested.
        setting, players = await asyncio.to_thread(make_players, self.services, problem, plan)
        if isinstance(self.screen, KernelScreen):
            self.pop_screen()
        self.push_screen(LiveDuelScreen(self, problem, plan, setting, players))

    def show_duel_board(self) -> None:
        """Shows ratings and duels; one of them can be replayed."""
        from screens.duel.board import DuelBoard
        from screens.duel.replay import ReplayDuelScreen

        def answered(record: DuelRecord | None) -> None:
            if record is not None and record.path is not None:
                self.push_screen(ReplayDuelScreen(self, record.path, record.header))

        self.push_screen(DuelBoard(self.services), answered)

    def show_sweeps(self) -> None:
        """Shows the newest sweep, during or after it."""
        from screens.sweep.screen import SweepScreen

        self.push_screen(SweepScreen(self))

    def save_settings(self, settings: Settings) -> None:
        """Takes settings over and writes the file; says what went wrong."""
        from arena.errors import ArenaError
        from arena.settings import save_settings

        self.services.settings = settings
        self.services.first_start = False
        if settings.theme in self.available_themes:
            self.theme = settings.theme
        self.set_keymap(as_sent(settings.keymap))
        try:
            save_settings(settings, self.services.paths)
        except ArenaError as error:
            self.picker.complain(explain(error))

    def action_command_palette(self) -> None:
        palette = _palette().Palette
        if not palette.is_open(self):
            self.push_screen(palette(id="--command-palette"))

    def action_help(self) -> None:
        from screens.dialogs.help import HelpScreen, keys_in_focus

        if not self._shows(HelpScreen):
            self.push_screen(HelpScreen(self.services.settings.keymap, self._scope, keys_in_focus(self.screen)))

    async def action_quit(self) -> None:
        """Leaves; a draft is named in the terminal, where it can still be read."""
        kept = [screen.draft_words for screen in self.screen_stack if isinstance(screen, BaseScreen)]
        self.exit(message="\n".join(filter(None, kept)) or None)

    async def end(self) -> None:
        await self.services.close()

    def action_help_quit(self) -> None:
        """ctrl+c where nothing is selected."""
        self.notify(f"{key_of('quit', self.services.settings.keymap)} quits.", timeout=4, markup=False)

    def _shows(self, dialog: type[Screen[Any]]) -> bool:
        """Whether a dialog is open already; the keys that open one work in dialogs, too."""
        return any(isinstance(screen, dialog) for screen in self.screen_stack)

    @property
    def _scope(self) -> Scope:
        """Whose keys are in force: of the uppermost screen that is no dialog."""
        scopes = [screen.SCOPE for screen in self.screen_stack if isinstance(screen, BaseScreen)]
        return scopes[-1] if scopes else "everywhere"

    def action_jump(self) -> None:
        if isinstance(self.screen, BaseScreen):
            self.screen.jump()

    def action_zoom(self) -> None:
        if isinstance(self.screen, BaseScreen):
            self.screen.zoom_focused()

    def action_settings(self) -> None:
        from screens.dialogs.settings import SettingsScreen

        if self._shows(SettingsScreen):
            return

        def answered(settings: Settings | None) -> None:
            if settings is not None:
                self.save_settings(settings)

        file = str(self.services.paths.settings_file)
        self.push_screen(SettingsScreen(self.services.settings, self.theme_names, file), answered)

    def action_doctor(self) -> None:
        from screens.dialogs.doctor import DoctorScreen

        if not self._shows(DoctorScreen):
            self.push_screen(DoctorScreen())

    def choose_theme(self, name: str) -> None:
        """Shows a theme, and keeps it in the settings."""
        self.save_settings(replace(self.services.settings, theme=name))

    def action_next_theme(self) -> None:
        names = self.theme_names
        at = names.index(self.theme) if self.theme in names else -1
        self.choose_theme(names[(at + 1) % len(names)])
        self.notify(f"theme: {self.theme}", timeout=2, markup=False)

    def get_key_display(self, binding: Binding) -> str:
        """As the key is written everywhere here."""
        return binding.key_display or short_key_words(binding.key)


def machine_words(settings: Settings) -> str:
    """Where kernels will run, in a few words."""
    from arena.errors import ArenaError
    from arena.machine.facts import choose_device, visible_gpus
    from sandbox.machine.devices import kind_of

    try:
        device = choose_device(settings.device)
    except ArenaError as error:
        return f"! {error}"
    kind = kind_of(device)
    if kind.on_gpus:
        return f"{visible_gpus()} {kind.ranks_name} · {kind.backend}"
    return f"{kind.ranks_name} over {kind.backend} · {os.cpu_count()} cores"


def run_app(problem: str = "", kernel: Path | None = None) -> int:
    """Runs the app until it is left. Returns the exit code.

    Raises:
        ArenaError: settings or workspace stand in the way; nothing was drawn.
    """
    from arena.paths import find_paths

    return ArenaApp(Services(find_paths()), problem, kernel).run_to_end()
