"""The app without a terminal: real screens, a small catalogue, recorded runs or a scripted referee."""

import math
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.app import App, ComposeResult
from textual.css.model import RuleSet
from textual.css.query import NoMatches
from textual.css.styles import RulesMap
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.notifications import Notification
from textual.pilot import Pilot
from textual.strip import Strip
from textual.timer import Timer
from textual.widgets import TextArea, _select
from waiting import PATIENCE_S, comes_true

import arena.machine.facts
import screens.base
import screens.picker.problem_table
import screens.terminal_app
from arena.paths import Paths
from arena.settings import Settings, save_settings
from problems.catalogue import HOME, Catalogue
from problems.specification import load_problem
from sandbox.protocol.events import AnyEvent, decode_event
from screens.app import ArenaApp
from screens.kernel.screen import KernelScreen
from screens.services import Services
from screens.terminal_app import TerminalApp
from screens.themes import VARIABLE_DEFAULTS
from screens.widgets.editor import Editor

HERE = Path(__file__).parent
REFEREE = (sys.executable, "-P", str(HERE.parent / "unit" / "scripted_referee.py"))
"""A real process that speaks the protocol and does what the kernel's text says: `pass`, `wait`, `die`..."""
PROBLEMS = ("collective/allreduce", "collective/allgather", "tensor/gemm_allreduce")

Opener = Callable[..., "AsyncIterator[tuple[ArenaApp, Pilot[None]]]"]

LOOKS = {"columns", "size", "theme"}
"""Parameters of tests that say the same at several sizes, or in several themes."""
_with_first_look: set[tuple[str, str]] = set()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks a test as `further` if the same test has another size or theme already. Filters warnings as the program does."""
    item.add_marker(pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"))
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    if LOOKS & parameters.keys():
        rest = {name: value for name, value in parameters.items() if name not in LOOKS}
        if (case := (item.location[2].partition("[")[0], repr(rest))) in _with_first_look:
            item.add_marker(pytest.mark.further)
        _with_first_look.add(case)


_drawn_update = Compositor.render_update


def _update_for_nobody(self: Compositor, full: bool = False, screen_stack: Any = None, simplify: bool = False) -> Any:
    if full:  # a picture
        return _drawn_update(self, full, screen_stack, simplify)
    self._dirty_regions.clear()
    return None


def drawn(app: App[Any]) -> list[Strip]:
    """Draws the screen with those below it."""
    visible_screen_stack.set(app._background_screens)
    return app.screen._compositor.render_strips()


@pytest.fixture(autouse=True)
def _nothing_is_drawn_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A headless app throws its updates away. Tests draw the screens that they read, and the last one."""
    monkeypatch.setattr(Compositor, "render_update", _update_for_nobody)


RuleSet.__hash__ = object.__hash__  # type: ignore[method-assign]  # the same, without a call of Python code
_parse = Stylesheet._parse_rules
_parsed: dict[tuple[object, ...], list[RuleSet]] = {}
_style_components = Stylesheet._process_component_classes
_styled: dict[tuple[object, ...], dict[str, RulesMap]] = {}
_numbers: dict[tuple[int, ...], int] = {}
"""Lists of rules, which apps share, by their addresses."""


def _parse_once(self: Stylesheet, css: str, *where: Any, **more: Any) -> list[RuleSet]:
    known = css, *where, *more.values(), *self._variables.items()
    if known not in _parsed:
        _parsed[known] = _parse(self, css, *where, **more)
    return _parsed[known]


def _style_components_once(self: Stylesheet, node: DOMNode) -> None:
    if not (names := node._get_component_classes()):
        return
    if getattr(self, "_numbered", None) is not (rules := self.rules):
        self._numbered = rules
        self._number = _numbers.setdefault(tuple(map(id, rules)), len(_numbers))
    path = (
        (
            each._css_type_name,
            each._id,
            each.classes,
            *(name for name, holds in each._PSEUDO_CLASSES.items() if holds(each)),
        )
        for each in node.css_path_nodes
    )
    known = self._number, *path
    if known not in _styled:
        _style_components(self, node)
        _styled[known] = {name: dict(styles.base._rules) for name, styles in node._component_styles.items()}
        return
    before, node._component_styles = node._component_styles, {}
    for name in names:
        virtual = DOMNode(classes=name)
        virtual._attach(node)
        virtual.styles.base._rules.update(_styled[known][name])
        node._component_styles[name] = virtual.styles
    if any(before.get(name) != styles for name, styles in node._component_styles.items()):
        node.refresh()


@pytest.fixture(autouse=True)
def _styles_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apps with equal rules and variables share what is parsed, and equal nodes the rules of their parts: a third of a test."""
    monkeypatch.setattr(Stylesheet, "_parse_rules", _parse_once)
    monkeypatch.setattr(Stylesheet, "_process_component_classes", _style_components_once)


_press_keys = App._press_keys
_wait_for_screen = Pilot._wait_for_screen
_resize_terminal = Pilot.resize_terminal


async def _press_what_is_seen(self: App[Any], keys: Iterable[str]) -> None:
    """Presses a key when the ones before it are handled, and the last dialog is gone. Before, it would be the dialog's."""
    for key in keys:
        await _keys_are_handled(self)
        await comes_true(lambda: getattr(self, "_vanished_at", 0.0) < math.inf)
        await _press_keys(self, [key])


async def _keys_are_handled(app: Any) -> None:
    if isinstance(app, TerminalApp):
        await comes_true(lambda: app._exit or app._exception or app._in_preparation or not (app._keys or app._in_turn))


async def _wait_until_handled(self: Pilot[None], timeout: float = PATIENCE_S) -> bool:
    """Waits until the app has all keys and has handled those that no screen holds, and then for what widgets tell others."""
    handled = [await _wait_for_screen(self, timeout)]
    await _keys_are_handled(self.app)
    return all(handled + [await _wait_for_screen(self, timeout) for _ in range(2)])


async def _wait_until_resized(self: Pilot[None], width: int, height: int) -> None:
    await _resize_terminal(self, width, height)
    await comes_true(lambda: self.app.screen._compositor.size == (width, height))
    await self._wait_for_screen()


@pytest.fixture(autouse=True)
def _keys_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key is given up, and a second one counts for 20 times as long: on a busy machine a test's steps take seconds."""
    monkeypatch.setattr(App, "_press_keys", _press_what_is_seen)
    monkeypatch.setattr(Pilot, "_wait_for_screen", _wait_until_handled)
    monkeypatch.setattr(Pilot, "resize_terminal", _wait_until_resized)
    monkeypatch.setattr(Notification, "has_expired", False)  # each goes with its box, after a test has seen it
    monkeypatch.setattr(_select, "Timer", lambda widget, delay, **more: Timer(widget, 20 * delay, **more))
    for limit in ("PATIENCE_S", "REPAINT_S", "PREPARING_S"):
        monkeypatch.setattr(screens.terminal_app, limit, 60.0)
    for module in (screens.base, screens.picker.problem_table):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() / 20))


class FewProblems(Services):
    """Three problems instead of all: pictures stay the same when problems are added."""

    def read_catalogue(self) -> Catalogue:
        return Catalogue([load_problem(HOME / folder) for folder in PROBLEMS])


def recording(name: str) -> list[AnyEvent]:
    """The events of a recorded run: "pass" and "timing" (of a version that named no clock), "told", "wrong" or "error"."""
    return [decode_event(line) for line in (HERE / "recordings" / f"{name}.jsonl").read_bytes().splitlines()]


@pytest.fixture
def events() -> Callable[[str], list[AnyEvent]]:
    """Recorded runs by name."""
    return recording


@pytest.fixture
def services(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Services:
    """Services with this test's own folders. Settings exist, so the app shows no welcome."""
    monkeypatch.setattr(TextArea.cursor_blink, "_default", False)
    monkeypatch.setattr(arena.machine.facts, "machine_words", lambda settings: "CPU ranks over gloo · 2 cores")
    save_settings(Settings(device="cpu"), paths)
    return FewProblems(paths, REFEREE)


@pytest.fixture
def open_app(services: Services) -> Opener:
    """Opens the app at a size, waits until it is ready, and closes it with its services."""

    @asynccontextmanager
    async def opened(
        size: tuple[int, int] = (160, 45), problem: str = ""
    ) -> AsyncIterator[tuple[ArenaApp, Pilot[None]]]:
        app = ArenaApp(services, problem)
        try:
            async with app.run_test(size=size) as pilot:
                await app.opened.wait()
                await _until(pilot, lambda: bool(app.picker.query("#problems") and app.picker.table.row_count))
                if problem:
                    await _until(pilot, lambda: isinstance(app.screen, KernelScreen) and app.screen.editor.text != "")
                await _until(pilot, lambda: not app._in_preparation)  # keys would wait for a screen that a test leaves
                yield app, pilot
                drawn(app)
                assert app.faults == []
        finally:
            await services.close()

    return opened  # type: ignore[return-value]


async def _until(pilot: Pilot[None] | None, condition: Callable[[], bool]) -> None:
    """Lets the app run until the condition is true and the screen in front has its widgets."""

    @wraps(condition)
    def true() -> bool:
        with suppress(NoMatches, AttributeError):  # a widget that is not mounted yet, or another screen
            return condition()
        return False

    await comes_true(true)
    if pilot is not None:
        await comes_true(lambda: not pilot.app.is_running or pilot.app._exit or pilot.app.screen.is_mounted)


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    """`await until(pilot, condition)`."""
    return _until


@pytest.fixture
def go_to(screen_text: Callable[..., str]) -> Callable[..., Awaitable[None]]:
    """`await go_to(pilot, goal, *keys)` presses keys and waits for a screen, one of that class, a focus or its #id, or words."""

    async def gone(pilot: Pilot[None], goal: Any, *keys: str) -> None:
        def places() -> Any:
            screen, told = pilot.app.screen, [note.message for note in pilot.app._notifications]
            if isinstance(goal, str):
                return f"{screen_text(pilot.app)}{told}#{screen.focused and screen.focused.id}"
            return screen, screen.focused, *type(screen).__mro__

        await pilot.press(*keys)
        await _until(pilot, lambda: goal in places() and not pilot.app._in_preparation)  # its focus may come later

    return gone


class EditorPage(TerminalApp):
    """The editor alone."""

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLE_DEFAULTS

    def compose(self) -> ComposeResult:
        yield Editor(id="kernel")


@pytest.fixture
def editing() -> Callable[..., "AbstractAsyncContextManager[tuple[Pilot[None], Editor]]"]:
    """`async with editing(size) as (pilot, editor)`: the editor alone, focused."""

    @asynccontextmanager
    async def opened(size: tuple[int, int] = (80, 24)) -> AsyncIterator[tuple[Pilot[None], Editor]]:
        async with EditorPage().run_test(size=size) as pilot:
            pilot.app.query_one(Editor).focus()
            yield pilot, pilot.app.query_one(Editor)

    return opened


@pytest.fixture
def type_kernel() -> Callable[[KernelScreen, str], None]:
    """Replaces the editor's text, as typing would."""

    def typed(screen: KernelScreen, text: str) -> None:
        screen.editor.replace(text, screen.editor.document.start, screen.editor.document.end)

    return typed


@pytest.fixture
def save_kernel(type_kernel: Callable[..., None]) -> Callable[[Pilot[None], str], Awaitable[None]]:
    """Replaces the editor's text and saves it, which runs it."""

    async def saved(pilot: Pilot[None], text: str) -> None:
        type_kernel(pilot.app.screen, text)
        await pilot.press("ctrl+s")

    return saved


@pytest.fixture
def screen_text() -> Callable[[ArenaApp], str]:
    """The text on the screen, line by line."""

    def text(app: ArenaApp) -> str:
        return "\n".join("".join(segment.text for segment in line) for line in drawn(app))

    return text
