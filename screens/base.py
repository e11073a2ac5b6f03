"""What all screens share: work that reports its trouble instead of taking the app down."""

from __future__ import annotations

import traceback
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.screen import ModalScreen, Screen, ScreenResultType

from arena.errors import ArenaError
from screens.actions import Scope
from screens.complaints import explain
from screens.themes import FOLDER

if TYPE_CHECKING:
    from screens.app import ArenaApp


class Dialog(ModalScreen[ScreenResultType]):
    """A view over another one; `escape` always leaves it."""

    CSS_PATH: ClassVar[Any] = FOLDER / "dialogs.tcss"


class BaseScreen(Screen[None]):
    """A full-screen view."""

    SCOPE: ClassVar[Scope] = "everywhere"

    def __init__(self) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]

    @property
    def arena_app(self) -> ArenaApp:
        """The app, with its own type."""
        return cast("ArenaApp", self.app)

    def start(self, work: Coroutine[Any, Any, None], group: str, *, exclusive: bool = False) -> None:
        """Runs `work` beside the screen. An exclusive group keeps only its newest work."""
        self.run_worker(self._guard(work), group=group, exclusive=exclusive, exit_on_error=False)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ArenaError as error:
            self.complain(explain(error))
        except Exception as error:  # a fault of ours: say it and stay up, nothing typed may be lost
            self.arena_app.faults.append("".join(traceback.format_exception(error)))
            self.complain(f"internal error: {type(error).__name__}: {error}")

    def complain(self, text: str) -> None:
        """Shows an error that the person should read."""
        self.app.notify(text, severity="error", timeout=10, markup=False)

    def say(self, text: str) -> None:
        """Shows a word in passing."""
        self.app.notify(text, timeout=4, markup=False)
