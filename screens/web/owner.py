"""The owner's app in a process of its own: `python -m screens.web.owner [PROBLEM]`; and the driver of every app in a browser."""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from textual import events, messages
from textual.drivers.web_driver import WebDriver

from arena.cli import exit_code_of

DRIVER = "screens.web.owner:BrowserDriver"
"""The value of TEXTUAL_DRIVER."""


class BrowserDriver(WebDriver):
    """Draws everything anew for a browser that connects later. Ends the app when the server ends."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        write: Callable[[bytes], int] = self._write

        def write_if_read(data: bytes) -> None:
            with suppress(BrokenPipeError):  # the server has ended, which the end of the input also shows
                write(data)

        self._write = write_if_read  # type: ignore[assignment]

    def start_application_mode(self) -> None:
        """Starts with the focus, and keeps it: an app without focus shows no keys, and a spectator may never click."""
        super().start_application_mode()
        self._app.call_later(self._app.post_message, events.AppFocus())

    def run_input_thread(self) -> None:
        """Reads until the server closes its end. Then ends the app, because no browser can show it any more."""
        super().run_input_thread()
        if not self.exit_event.is_set():
            self._later(self._app.post_message, messages.ExitApp())

    def on_meta(self, packet_type: str, payload: dict[str, object]) -> None:
        """Handles a packet. `attach` means a new, empty terminal: sets it up, takes its size, draws everything."""
        if packet_type == "attach":
            self._later(self._set_up_terminal)
            super().on_meta("resize", payload)
            # after the new size, which is a message to the app
            self._later(self._app.call_later, partial(self._app.refresh, layout=True))
        else:
            super().on_meta(packet_type, payload)

    def _set_up_terminal(self) -> None:
        self.write("\x1b[?1049h\x1b[?25l")  # alternate screen, no cursor
        self._enable_mouse_support()
        self._enable_bracketed_paste()

    def _later(self, call: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call, *arguments)


def main() -> int:
    """Runs the app until it is left. Returns the exit code."""
    from screens.app import run_app

    return exit_code_of(lambda: run_app("".join(sys.argv[1:2])))


if __name__ == "__main__":
    sys.exit(main())
