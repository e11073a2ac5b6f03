"""The app: its start, its end, and what is loaded after the first paint."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace
from rich.console import RenderableType
from rich.panel import Panel
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.screen import Screen

from arena.errors import ArenaError, with_advice
from arena.paths import find_paths
from arena.settings import MODELS_HEAD, Settings, load_settings, save_settings
from sandbox.protocol.kernel_files import Kernel
from screens.actions import Scope, bindings, key_of, key_words, short_key_words
from screens.app_protocol import DuelPlan, ask
from screens.base import COMPLAINED_S, KEYS_BESIDE_FROM, BaseScreen
from screens.keymap import as_sent, keymap_fault
from screens.picker import PickerScreen
from screens.services import Services
from screens.terminal_app import TerminalApp, edit_outside, has_shell
from screens.themes import DEFAULT, FOLDER, VARIABLE_DEFAULTS, load_themes, sixteen_colours

if TYPE_CHECKING:
    from arena.duel.journal import DuelRecord
    from arena.runs.judge import Notice
    from arena.runs.origin import Origin
    from arena.setting_choice import Choice
    from problems.specification import Problem
    from screens.duel.live import DuelStart
    from screens.model.model_session import ModelPlan


MESSAGE = 300
"""Characters of an error's message that are shown when the app ends."""
FULL_PASS_S = 60.0
RESTYLE_S = 0.1
"""Seconds until a new theme is drawn at the earliest, if other keys wait."""
WIDGETS_STYLES = Path(__file__).parent / "widgets" / "widgets.tcss"
NEVER = 1_000_000
"""Collections of younger objects before the garbage collector makes a full one by itself."""


_palette: Callable[[], Any] = partial(import_module, "screens.palette")
"""Returns the module of the command palette, which is imported when the palette is opened."""


class ArenaApp(TerminalApp):
    """pkb-arena in a terminal: its keys, settings and themes, and its screens, each imported when it is opened first."""

    TITLE = "pkb-arena"
    # Textual does not read the stylesheet of a default screen. Parsing what the first paint does not need would delay it.
    CSS_PATH: ClassVar[Any] = [Path(__file__).with_name("app.tcss"), PickerScreen.CSS_PATH]
    LATER_CSS: ClassVar[Any] = [WIDGETS_STYLES, PickerScreen.CONTENTS_CSS_PATH]

    COMMANDS: ClassVar[Any] = {lambda: _palette().Commands}
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("everywhere")]

    keys_beside = False
    """Whether a panel beside the screen lists the keys."""
    _theme_read = ""
    """The theme that the stylesheet was read for; empty before the first."""

    def __init__(self, services: Services, problem: str = "", kernel: Path | None = None) -> None:
        """`problem` (id, slug or stem) opens at once, with `kernel` if one is given."""
        super().__init__()
        self.services = services
        themes, self.theme_errors = load_themes((FOLDER, services.paths.config / "themes"))
        for theme in themes:
            self.register_theme(theme)
        self.theme_names = [theme.name for theme in themes]
        self.theme = services.settings.theme if services.settings.theme in self.available_themes else DEFAULT
        self._theme_read = self.theme
        self.stylesheet.set_variables(self.get_css_variables())
        self.set_keymap(as_sent(services.settings.keymap))
        self.opened = asyncio.Event()
        """Set once catalogue, index of results and engine are loaded."""
        self.faults: list[str] = []
        """Tracebacks of bugs in pkb-arena itself."""
        self.picker = PickerScreen(self)
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
            with self.keys_wait():  # for the list
                catalogue = await services.read()
                await self.fill_picker()
            services.make_engine(self._notice)
            self.opened.set()
            self.picker.refresh_bindings()
        finally:
            gc.freeze()  # objects made so far stay: the collector need not scan them (80 ms) in the middle of a run
            gc.enable()
            # A full collection blocks the app for 40 to 90 ms. Make one a minute, not several in a minute of typing.
            gc.set_threshold(*gc.get_threshold()[:2], NEVER)
            self.set_interval(FULL_PASS_S, partial(gc.collect, 2))  # Textual takes no built-in function itself
        for broken in [*map(str, catalogue.broken), *map(str, self.theme_errors)]:
            self.notify(broken, severity="warning", timeout=15, markup=False)
        if fault := keymap_fault(services.settings.keymap):
            text = f"keymap: {fault} → settings, then keymap, shows every action and its key"
            self.notify(text, severity="warning", timeout=15, markup=False)
        if self._problem:
            self.open_problem(catalogue.find(self._problem), self._kernel)
        elif services.first_start and catalogue.problems:
            self._welcome(catalogue.problems)

    def _welcome(self, problems: list[Problem]) -> None:
        from arena.machine.facts import machine_words
        from screens.dialogs.questions import Welcome

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

    def refresh_css(self, animate: bool = True) -> None:
        """Reads the stylesheet again for another theme. Textual would do so for the first one, too, in 20 ms."""
        if self.theme == self._theme_read:
            return
        if self._keys:  # the next one may show another theme, as in a list, and each takes a second on a busy machine
            self.set_timer(RESTYLE_S, partial(self.refresh_css, animate=False))
            return
        self._theme_read = self.theme
        super().refresh_css(animate)
        if self.screen_stack and self.screen not in self.children:  # Textual leaves its menu in the colours before
            self.stylesheet.update(self.screen, animate)

    def get_css_variables(self) -> dict[str, str]:
        """Returns none before the user's theme is known: Textual first asks for those of its default theme."""
        variables = super().get_css_variables() if self._theme_read else {}
        drawn = sys.__stdout__ is not None and sys.__stdout__.isatty()  # a picture or a page has all colours
        if drawn and self.console.color_system == "standard" and not self.current_theme.ansi:
            # changed in place: `theme_variables` is the same dict
            variables.update(sixteen_colours(dark=self.current_theme.dark))
        return variables

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLE_DEFAULTS

    # --- settings and themes -------------------------------------------------------------------------------

    def save_settings(self, settings: Settings, before: Settings | None = None) -> None:
        """Applies settings and writes those that changed into the file; shows an error of that.

        before: the settings before the change; None: the current ones.
        """
        services, old = self.services, before or self.services.settings
        changed = {
            name: new for name in settings.__struct_fields__ if (new := getattr(settings, name)) != getattr(old, name)
        }
        services.settings = settings
        services.first_start = False
        try:
            services.settings = replace(load_settings(services.paths), **changed)  # others may have edited the file
            save_settings(services.settings, services.paths)
            if before is not None:
                self.notify("Settings saved.", timeout=3)
        except ArenaError as error:
            self.notify(error.one_line, severity="error", timeout=10, markup=False)
        self.show_theme()
        self.set_keymap(as_sent(services.settings.keymap))

    @property
    def vim_keys(self) -> bool:
        """Whether the editors have the keys of vim."""
        return self.services.settings.vim

    def show_theme(self) -> None:
        if self.services.settings.theme in self.available_themes:
            self.theme = self.services.settings.theme

    def choose_theme(self, name: str) -> None:
        self.save_settings(replace(self.services.settings, theme=name))

    def action_next_theme(self) -> None:
        names = self.theme_names
        at = names.index(self.theme) if self.theme in names else -1
        self.choose_theme(names[(at + 1) % len(names)])
        self.notify(f"theme: {self.theme}", timeout=2, markup=False)

    # --- keys ----------------------------------------------------------------------------------------------

    def action_command_palette(self) -> None:
        self.push_screen(_palette().Palette())  # without an id: the one before may not be removed yet

    def action_help(self) -> None:
        """Opens the help. In the help: shows the keys beside the screen from now on, or no longer."""
        from screens.dialogs.help import HelpScreen, help_pages, keys_in_focus

        screens = [each for each in self.screen_stack if isinstance(each, BaseScreen)]
        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss()
            self.keys_beside = not self.keys_beside
            self.call_after_refresh(self.show_keys_beside, screens[-1])
            if self.keys_beside and self.size.width < KEYS_BESIDE_FROM:
                self.notify(f"The keys are beside the screen from {KEYS_BESIDE_FROM} columns on.", timeout=4)
            return
        focus = keys_in_focus(self.screen)
        scope: Scope = screens[-1].SCOPE if screens else "everywhere"
        self.push_screen(HelpScreen("Help", *help_pages(self.services.settings.keymap, scope, focus, self._text)))

    def show_keys_beside(self, screen: BaseScreen) -> None:
        from screens.dialogs.help import show_keys_beside

        show_keys_beside(screen, shown=self.keys_beside)

    def action_terms(self) -> None:
        """Shows the sentence of each term on the screen, or else all terms."""
        from screens.dialogs import Reader
        from screens.dialogs.help import TERMS, terms_on

        self.push_screen(Reader("Terms", terms_on(self._text) or TERMS))

    @property
    def _text(self) -> str:
        return "\n".join(strip.text for strip in self.screen._compositor.render_strips())

    async def action_quit(self) -> None:
        """Quits if every screen allows it, and names unsaved drafts in the terminal, where they can still be read."""
        screens = [screen for screen in self.screen_stack if isinstance(screen, BaseScreen)]
        if not all(screen.may_quit() for screen in screens):
            return
        kept, lost = self._keep_texts(screens)
        if lost and not screens[-1].was_pressed("lose"):
            screens[-1].note_press("lose", COMPLAINED_S)
            screens[-1].complain(f"{lost[0]}. {key_of('quit', self.services.settings.keymap)} again quits without it")
            return
        self.exit(message="\n".join([*kept, *lost]) or None)

    def _keep_texts(self, screens: list[BaseScreen]) -> tuple[list[str], list[str]]:
        """Keeps the unsaved text of all screens. Returns where texts are, and which could not be kept."""
        kept, lost = [], []
        for screen in screens:
            try:
                screen.keep_text()
                kept.append(screen.draft_words)
            except Exception as error:
                lost.append(f"Unsaved text could not be kept: {error}")
        return list(dict.fromkeys(filter(None, kept))), lost

    def action_suspend(self) -> None:
        """Stops the process, as ctrl+z does in a shell. In the editor ctrl+z takes back the last change instead."""
        if not has_shell() or self._driver is None or not self._driver.can_suspend:
            self.notify("Not suspended: no shell could continue the app.", timeout=4, markup=False)
        else:
            self.call_after_refresh(self.action_suspend_process)  # not while the menu is being removed

    def action_help_quit(self) -> None:
        """Shows the key that quits, after ctrl+c without a selection."""
        self.notify(f"{key_of('quit', self.services.settings.keymap)} quits.", timeout=4, markup=False)

    def action_jump(self) -> None:
        if (jump := getattr(self.screen, "jump", None)) is not None:  # a screen with panes, or a dialog with fields
            jump()

    def action_zoom(self) -> None:
        if isinstance(self.screen, BaseScreen):
            self.screen.zoom_focused()

    def action_settings(self, search: str = "") -> None:
        from screens.dialogs.settings import SettingsScreen

        before, file = self.services.settings, str(self.services.paths.settings_file)
        save = partial(self.save_settings, before=before)
        ask(self, SettingsScreen(before, self.theme_names, file, search), save)

    def action_doctor(self) -> None:
        from screens.dialogs.doctor import DoctorScreen

        self.push_screen(DoctorScreen())

    def get_key_display(self, binding: Binding) -> str:
        """Returns the key in the spelling of all screens."""
        return binding.key_display or short_key_words(binding.key)

    # --- faults and screens ----------------------------------------------------------------------

    def record_fault(self, error: Exception) -> None:
        from arena.fault_report import write_report

        try:
            screens = ", ".join(type(each).__name__ for each in self.screen_stack)
            words = f"last key: {self._last_key} · screens: {screens}"
            self.faults.append(write_report(self.services.paths.traceback, error, words))
        except (OSError, ArenaError) as unwritten:
            self.faults.append(f"{error!r} (no report: {unwritten})")

    def fault_box(self, error: Exception) -> RenderableType:
        """Keeps all unsaved text, writes the report, and says where both are."""
        from arena.fault_report import without_keys

        screens = [screen for screen in self.screen_stack if isinstance(screen, BaseScreen)]
        kept, lost = self._keep_texts(screens)
        self.record_fault(error)
        message = " ".join(str(error).split())
        happened = f"{type(error).__name__}{f' after {key_words(self._last_key)}' if self._last_key else ''}"
        lines = [
            without_keys(f"{happened}: {message if len(message) < MESSAGE else f'{message[:MESSAGE]}…'}"),
            *kept,
            *lost,
            f"Report: {self.services.paths.traceback}",
            f"Open again: {screens[-1].reopen if screens else 'pkb-arena'}",
        ]
        title = "pkb-arena ended because of a fault of its own"
        return Panel(
            Text("\n".join(lines)), title=title, title_align="left", border_style="red", width=min(100, self.size.width)
        )

    async def fill_picker(self) -> None:
        """Shows the problems and the standings as they were read last."""
        from arena.machine.facts import machine_words

        catalogue = self.services.catalogue
        if catalogue is not None:
            words = await asyncio.to_thread(machine_words, self.services.settings)  # slow while a GPU's driver sleeps
            await self.picker.show(catalogue.problems, self.services.standings, words)

    async def refresh_picker(self) -> None:
        await self.services.refresh_standings()
        await self.fill_picker()

    def open_problem(
        self, problem: Problem, kernel: Path | None = None, *, run_at_once: bool = False, text: str = ""
    ) -> None:
        """Opens the kernel screen for a problem; one that is open is left first. `text` goes into the editor, unsaved."""
        from screens.kernel.screen import KernelScreen

        self.push_screen(KernelScreen(self, problem, kernel, run_at_once=run_at_once, text=text))

    def ask_model(
        self, problem: Problem, choice: Choice | None = None, origin: Origin | None = None, *, improve: bool = False
    ) -> None:
        self.picker.start(self._ask_model(problem, choice, origin, improve=improve), "ask")

    async def _ask_model(
        self, problem: Problem, choice: Choice | None, origin: Origin | None, *, improve: bool
    ) -> None:
        from arena.players.player import PlayerSetup
        from arena.setting_choice import Choice, choose_setting
        from screens.dialogs.questions import Question
        from screens.kernel.screen import KernelScreen
        from screens.model import ModelScreen
        from screens.model.setup import NO_MODEL, ModelSetup

        services = self.services
        with self.keys_wait():
            await services.read_players()  # models may have been added since the start
        if not services.settings.models:
            question = Question("Ask a model", NO_MODEL, yes="open the settings file", no="back")
            if await self.push_screen_wait(question) and await self._edit_models():
                await self._ask_model(problem, choice, origin, improve=improve)
            return
        setting = choose_setting(problem, choice or Choice(), services.settings)

        def answered(plan: ModelPlan) -> None:
            if isinstance(self.screen, KernelScreen):
                self.screen.rest()
            self.push_screen(ModelScreen(self, problem, setting, plan))

        assert services.catalogue is not None
        setup = PlayerSetup(services.settings, services.catalogue, services.paths)
        ask(self, ModelSetup(problem, setup, origin, improve=improve), answered)

    async def _edit_models(self) -> bool:
        """Opens the settings file at its models; returns whether it then has one."""
        services, path = self.services, self.services.paths.settings_file
        if not path.exists() or MODELS_HEAD not in path.read_text(encoding="utf-8"):
            await asyncio.to_thread(lambda: save_settings(load_settings(services.paths), services.paths))
        before = path.read_text(encoding="utf-8").partition(MODELS_HEAD)[0]
        if trouble := await edit_outside(self, services.settings, path, before.count("\n") + 1):
            self.picker.complain(f"{trouble} → edit {path}")
            return False
        return "\n[models." in path.read_text(encoding="utf-8")

    async def open_beside(self, problem: Problem, path: Path, kernel: Kernel) -> None:
        self.open_problem(problem, await asyncio.to_thread(self.services.workspace.put_beside, path, kernel))

    def take_over(self, problem: Problem, kernel: Kernel) -> None:
        """Leaves the screen of a model; its kernel goes into the editor, unsaved, or beside one that was not open."""
        from screens.kernel.screen import KernelScreen

        self.pop_screen()
        path = self.services.workspace.last_open(problem)
        if isinstance(self.screen, KernelScreen):
            self.screen.take_over(kernel)
        elif kernel.files or path.exists():
            self.picker.start(self.open_beside(problem, path, kernel), "open")
        else:
            self.open_problem(problem, text=kernel.source)

    def plan_duel(self, problem: Problem, choice: Choice | None = None, kernel: Path | None = None) -> None:
        self.picker.start(self._plan_duel(problem, choice, kernel), "duel")

    async def _plan_duel(self, problem: Problem, choice: Choice | None, kernel: Path | None) -> None:
        from screens.duel.setup import duel_setup

        with self.keys_wait():
            setup = await duel_setup(self.services, problem, choice, kernel)
        if (start := await self.push_screen_wait(setup)) is not None:
            self._show_duel(problem, start)

    def play_duel(self, problem: Problem, plan: DuelPlan) -> None:
        """Opens a duel whose players are known, unless the screen in front is left before they are made."""
        self.picker.start(self._play_duel(problem, plan, self.screen), "duel", exclusive=True)

    async def _play_duel(self, problem: Problem, plan: DuelPlan, front: Screen[Any]) -> None:
        from screens.duel.live import make_players

        start = await asyncio.to_thread(make_players, self.services, problem, plan)
        if self.screen is front:
            self._show_duel(problem, start)

    def _show_duel(self, problem: Problem, start: DuelStart) -> None:
        """Opens a duel in place of one that is over, or above a kernel screen, which gets the judge back afterwards.

        Unsaved text of that screen goes into the duel and back.
        """
        from screens.duel.live import LiveDuelScreen
        from screens.kernel.screen import KernelScreen

        if isinstance(self.screen, LiveDuelScreen):
            self.screen.dismiss()
        below, duel = self.screen, LiveDuelScreen(self, problem, start)
        kernel = None  # the kernel screen below, if it has the same file in its editor
        if isinstance(below, KernelScreen):
            below.rest()
            if duel.edits is not None and duel.edited_path == below.session.path:
                kernel = below
                duel.text = below.editor.text if below.editor.dirty else ""

        def left(_: None) -> None:
            if kernel is not None and duel.unsaved not in ("", kernel.editor.file_text):
                kernel.take_over(kernel.buffer.kernel.with_text(duel.unsaved))

        self.push_screen(duel, left)

    def show_duel_board(self) -> None:
        """Shows ratings and duels; one of them can be replayed."""
        from screens.duel.board import DuelBoard
        from screens.duel.replay import ReplayDuelScreen

        def answered(record: DuelRecord) -> None:
            if record.path is not None:
                self.push_screen(ReplayDuelScreen(self, record.path, record.header), lambda _: self.show_duel_board())

        ask(self, DuelBoard(self.services), answered)

    def show_sweeps(self, name: str = "") -> None:
        """Shows a sweep, during or after it; without a name the newest."""
        from screens.sweep import SweepScreen

        self.push_screen(SweepScreen(self, name))

    def show_demo(self) -> None:
        from arena.demo import load_script
        from screens.demo import DemoScreen

        self.push_screen(DemoScreen(self, load_script()))

    def action_machine(self) -> None:
        """Shows what runs and waits on this machine; a sweep of it can be opened."""
        from screens.dialogs.machine import MachineDialog

        ask(self, MachineDialog(self.services), self.show_sweeps)


def run_app(problem: str, kernel: Path | None = None) -> int:
    """Runs the app until it is left. Returns the exit code.

    Raises:
        ArenaError: the settings or the workspace cannot be used; nothing was drawn.
    """
    return ArenaApp(Services(find_paths()), problem, kernel).run_to_end()
