"""Opens the user's own editor in this terminal; runs continue in the background."""

import asyncio
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from arena.settings import Settings
from screens.actions import key_of

_TAKES_LINE = {"vi", "vim", "nvim", "nano", "emacs", "emacsclient", "kak", "micro", "joe", "ne"}


def editor_command(settings: Settings, path: Path, line: int) -> list[str]:
    """Returns the command that opens `path`, at `line` (1-based) if the editor is known to accept a line.

    The setting comes first, then $VISUAL, then $EDITOR, then the first of nano, vim and vi that exists.
    """
    asked = settings.editor or os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    command = shlex.split(asked) or [next((name for name in ("nano", "vim", "vi") if shutil.which(name)), "vi")]
    place = [f"+{line}"] if Path(command[0]).name in _TAKES_LINE else []
    return [*command, *place, str(path)]


async def edit_outside(app: App[Any], settings: Settings, path: Path, line: int) -> str:
    """Hands the terminal to the editor until it ends. Returns what went wrong, if anything did."""
    try:
        command = editor_command(settings, path, line)
    except ValueError as error:
        return f"the editor setting cannot be read: {error}"
    if shutil.which(command[0]) is None:
        key = key_of("settings", settings.keymap)
        return f"there is no editor {command[0]!r} → set `editor` in the settings ({key}) or $EDITOR"
    try:
        with app.suspend():
            process = await asyncio.create_subprocess_exec(*command)  # shares the terminal, on purpose
            status = await process.wait()
    except SuspendNotSupported:
        return "this terminal cannot be handed to another program → edit the file elsewhere; saving it runs it"
    except OSError as error:
        return f"{command[0]} did not start: {error.strerror}"
    app.refresh(layout=True)
    return f"{command[0]} ended with status {status}" if status else ""
