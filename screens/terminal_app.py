"""The app and its terminal: quits on a signal or a lost terminal, and pauses while another program uses it."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from textual.app import App

LEAVE_S = 10.0
"""From a signal to the end of the process, at the latest; the referee ends by itself when its pipe closes."""
TERMINAL_CHECK_S = 5.0


class TerminalApp(App[None]):
    """The base of the app."""

    def __init__(self) -> None:
        super().__init__()
        self._away = False
        """Another program has the terminal."""

    def run_to_end(self) -> int:
        """Runs until the app is left, and ends what is beside its screens. Returns the exit code."""

        async def live() -> None:
            try:
                await self.run_async()
            finally:
                await self.end()  # after the terminal is back: nobody waits in front of a dead screen

        asyncio.run(live())
        return self.return_code or 0

    async def end(self) -> None:
        """Ends what runs beside the screens."""

    def on_mount(self) -> None:
        if sys.platform != "win32":
            for number in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, partial(self._signalled, number))
            if sys.__stdin__ is not None and sys.__stdin__.isatty():
                self.set_interval(TERMINAL_CHECK_S, self._check_terminal)

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

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Nothing is written to the terminal while another program has it.

        Textual alone would go on drawing into a queue that nobody empties any more, and block for good when it is full.
        """
        self._away = True
        try:
            with self.batch_update(), super().suspend():
                yield
        finally:
            self._away = False

    def bell(self) -> None:
        if not self._away:
            super().bell()
