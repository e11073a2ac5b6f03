"""Errors that keep the app from opening are printed to the terminal, with exit code 3."""

import os
import sys

import pexpect
import pytest


def open_app(*command: str, **environment: str) -> tuple[int, str]:
    """The app in a pseudo-terminal: its exit code, and all that it wrote."""
    app = pexpect.spawn(
        sys.executable,
        ["-P", "-m", *command],
        env=os.environ | {"TERM": "xterm-256color"} | environment,
        encoding="utf-8",
        timeout=60,
    )
    app.expect(pexpect.EOF)
    app.close()
    return app.exitstatus, app.before


@pytest.mark.slow
def test_a_data_folder_that_cannot_be_written_is_named() -> None:
    code, text = open_app("screens.main", PKB_ARENA_HOME="/dev/null/arena")
    assert code == 3
    assert "/dev/null/arena" in text
    assert "Traceback" not in text


def test_the_command_line_alone_names_the_command_that_has_the_app() -> None:
    code, text = open_app("arena.cli")
    assert code == 2
    assert "`pkb-arena`" in text
