"""The part of the app that its screens use. Screens import this protocol, never the app's class."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from rich.console import RenderableType
from textual import events
from textual._callback import invoke
from textual.await_complete import AwaitComplete
from textual.dom import DOMNode
from textual.errors import NoWidget
from textual.geometry import Size
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import Screen
from textual.widget import Widget

if TYPE_CHECKING:
    from arena.runs.origin import Origin
    from arena.setting_choice import Choice
    from problems.specification import Problem
    from sandbox.protocol.kernel_files import Kernel
    from screens.services import Services


T = TypeVar("T")
BURST_S = 0.02
"""Maximum seconds between two keys of a burst, faster than fingers."""


@dataclass(frozen=True)
class DuelPlan:
    """The players of a duel, named as on the command line, and its limits. `you` and `guest` use the workspace."""

    left: str
    right: str
    minutes: float | None
    """None: no clock."""
    budget_usd: float | None = None
    """Dollars that each player may spend; None: no limit."""
    choice: Choice | None = None
    """The chosen parts of its setting; None: the user's settings decide."""
    kernel: Path | None = None
    """The file or folder that `you` plays with; None: the one that was open last."""


class AppProtocol(Protocol):
    """What screens use of the app beyond what every Textual app offers (`push_screen`, `notify`...)."""

    @property
    def services(self) -> Services:
        """Settings, workspace, catalogue, results and engine."""

    @property
    def opened(self) -> asyncio.Event:
        """Set once catalogue, index of results and engine are loaded."""

    def record_fault(self, error: Exception) -> None:
        """Keeps the traceback of a bug in pkb-arena itself; the app keeps running."""

    def keys_wait(self) -> AbstractContextManager[None]:
        """Holds back keys that are meant for a screen in preparation, which the caller opens at once."""

    def show_keys_beside(self, screen: Any) -> None:
        """Shows the keys beside a screen, or no longer, as F1 in the help chose."""

    def open_problem(
        self, problem: Problem, kernel: Path | None = None, *, run_at_once: bool = False, text: str = ""
    ) -> None:
        """Opens the kernel screen for a problem. `text` goes into the editor, unsaved."""

    def ask_model(
        self, problem: Problem, choice: Choice | None = None, origin: Origin | None = None, *, improve: bool = False
    ) -> None:
        """Asks which model writes for the problem, in the setting of `choice`, and starts it.

        origin: a kernel that it may improve. improve: whether that is preselected.
        """

    async def open_beside(self, problem: Problem, path: Path, kernel: Kernel) -> None:
        """Writes a kernel as a new one beside a path, and opens it."""

    def take_over(self, problem: Problem, kernel: Kernel) -> None:
        """Leaves the screen of a model; its kernel goes into the editor, unsaved, or beside the user's own if it is a folder."""

    def plan_duel(self, problem: Problem, choice: Choice | None = None, kernel: Path | None = None) -> None:
        """Asks for the players, and starts the duel in the setting of the choice. kernel: as in `DuelPlan`."""

    def play_duel(self, problem: Problem, plan: DuelPlan) -> None:
        """Opens the duel screen."""

    def show_duel_board(self) -> None:
        """Shows ratings and duels."""

    def show_sweeps(self) -> None:
        """Shows the newest sweep, while it goes on or after it."""

    def show_demo(self) -> None:
        """Plays the demo until a key is pressed."""

    async def refresh_picker(self) -> None:
        """Reads the results again and shows them in the list of problems."""

    @property
    def theme_names(self) -> list[str]:
        """The names of all themes."""

    def show_theme(self) -> None:
        """Shows the theme of the settings, after another one was only looked at."""

    def choose_theme(self, name: str) -> None:
        """Shows a theme, and keeps it in the settings."""


def arena_app(node: DOMNode) -> AppProtocol:
    """Returns the app of a screen or widget."""
    return cast("AppProtocol", node.app)


def text_of(key: events.Key) -> str:
    """What the key types; empty if it types nothing."""
    if key.key in ("enter", "ctrl+j"):
        return "\n"
    return "\t" if key.key == "tab" else (key.character or "") if key.is_printable else ""


def if_there(click: Any) -> Any:
    """Makes a widget ignore a click on what is gone since it was drawn. Textual would fail."""

    async def clicked(drawn: DOMNode, event: events.Click) -> None:
        with suppress(LookupError, NoWidget):
            await invoke(click, drawn, event)

    return clicked


def ask(node: DOMNode, dialog: Screen[T | None], then: Callable[[T], object]) -> None:
    """Opens a dialog. `then` gets its answer; a dialog that is left without one calls nothing."""

    def answered(given: T | None) -> None:
        if given is not None:
            then(given)

    node.app.push_screen(dialog, answered)


class Layer(Screen[T]):
    """What all screens and dialogs share."""

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Closes it if it is in front. Keys pressed fast reach it once more later.

        Textual would close whichever screen is in front, or end the app.
        """
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()

    def render(self) -> RenderableType:
        """Draws the screen below behind itself. Textual takes one from a list that any drawing may have used up or begun again.

        A screen that was asked for the style under the mouse took the one above, which was drawn on it: without end.
        """
        stack, background = self.app.screen_stack, self.styles.background
        below = stack[stack.index(self) - 1] if background.a < 1 and self in stack[1:] else None
        return BackgroundScreen(below, background) if below is not None else super().render()

    def scroll_to_center(self, widget: Widget, animate: bool = False, *, immediate: bool = True, **how: Any) -> None:
        """Scrolls at once to what takes the focus: a slow move to what had it before could end last."""
        super().scroll_to_center(widget, animate, immediate=immediate, **how)

    async def _on_resize(self, event: events.Resize) -> None:
        """Ignores a size that the terminal no longer has.

        A layout of another size sends the screen an event of that size: two sizes in a queue would take turns for ever.
        """
        if event.size != self.app.size:
            event.prevent_default()

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        """Lays it out, then wakes it: a layout by the screen in front stops the timer of the next one, as of a new bar."""
        super()._refresh_layout(size, scroll)
        self.check_idle()
