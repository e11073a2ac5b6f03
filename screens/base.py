"""The base of the full-screen views: work beside the screen that reports its errors instead of ending the app."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, ClassVar

from textual.screen import Screen

from arena.errors import ArenaError
from screens.actions import Scope
from screens.app_protocol import AppProtocol
from screens.complaints import explain


class BaseScreen(Screen[None]):
    """A full-screen view."""

    SCOPE: ClassVar[Scope] = "everywhere"

    def __init__(self, parent_app: AppProtocol) -> None:
        """`parent_app` is the app that opens this screen."""
        super().__init__()
        self.parent_app = parent_app
        self.HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]

    def start(self, work: Coroutine[Any, Any, None], group: str, *, exclusive: bool = False) -> None:
        """Runs `work` beside the screen. An exclusive group keeps only its newest work."""
        self.run_worker(self._guard(work), group=group, exclusive=exclusive, exit_on_error=False)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ArenaError as error:
            self.complain(explain(error))
        except Exception as error:  # a mistake of ours: show it and stay up, nothing typed may be lost
            self.parent_app.record_fault(error)
            self.complain(f"internal error: {type(error).__name__}: {error}")

    def complain(self, text: str) -> None:
        """Shows an error that the person should read."""
        self.app.notify(text, severity="error", timeout=10, markup=False)

    def say(self, text: str) -> None:
        """Shows a short message."""
        self.app.notify(text, timeout=4, markup=False)
