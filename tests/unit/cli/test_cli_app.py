"""Errors that keep the app from opening are printed to the terminal, with exit code 3."""

import os
import signal
import sys

import pexpect
import pytest
from textual.drivers.headless_driver import HeadlessDriver
from waiting import PATIENCE_S

from screens.terminal_app import TerminalApp


def open_app(*command: str, **environment: str) -> tuple[int, str]:
    """Runs the app in a pseudo-terminal; returns its exit code and its output."""
    app = pexpect.spawn(
        sys.executable,
        ["-P", "-m", *command],
        env=os.environ | {"TERM": "xterm-256color"} | environment,
        encoding="utf-8",
        timeout=PATIENCE_S,
    )
    app.expect(pexpect.EOF)
    app.close()
    return app.exitstatus, app.before


@pytest.mark.slow
def test_data_folder_that_cannot_be_written_is_named() -> None:
    code, text = open_app("screens.main", PKB_ARENA_HOME="/dev/null/arena")
    assert code == 3
    assert "/dev/null/arena" in text
    assert "Traceback" not in text


def test_command_line_alone_names_command_that_has_app() -> None:
    code, text = open_app("arena.cli")
    assert code == 2
    assert "`pkb-arena`" in text


def test_app_does_not_begin_unless_stderr_is_terminal() -> None:
    """Textual would draw on stderr, where nobody would see it."""
    for closed in ("2>&-", "2>/dev/null"):
        app = pexpect.spawn("bash", ["-c", f'"{sys.executable}" -P -m screens.main {closed}'], timeout=PATIENCE_S)
        app.expect(pexpect.EOF)
        app.close()
        assert app.exitstatus == 2


def test_error_in_app_is_no_kernel_that_failed() -> None:
    class Broken(TerminalApp):
        def on_ready(self) -> None:
            raise KeyError("x")

    app = Broken()
    app.driver_class = HeadlessDriver
    handler = signal.getsignal(signal.SIGINT)
    assert app.run_to_end() == 3
    signal.signal(signal.SIGINT, handler)  # the app ignores it at its end
