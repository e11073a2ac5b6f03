"""The app, as `screens.main` starts it, with an exit code of its own for an end that nothing asked for.

SIGUSR1 writes to INSPECTED_TO what its screens, queues and tasks wait for.
"""

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from textual._queue import Queue
from textual.app import App

from screens.main import main

INSPECTED_TO = "PKB_INSPECTED_TO"
"""The environment variable with the file's path."""
UNASKED = 70
"""The exit code of an app that ended without an error although nothing called its `exit`."""
_APP = """_size _resize_event _resize_timer _batch_count _exit _away _keys _in_turn _typed_into _in_preparation
_vanished_at _message_queue _next_callbacks"""
_SCREEN = """_size is_attached is_mounted is_running _closing _closed stack_updates _layout_required _scroll_required
_repaint_required _recompose_required _dirty_widgets _callbacks _message_queue _next_callbacks"""


def _fields(node: object, names: str) -> Iterator[str]:
    """The attributes of these names; of a queue, what waits in it."""
    for name in names.split():
        value = getattr(node, name)
        yield f"  {name} = {[*value.values] if isinstance(value, Queue) else value!r}"


def _timers(node: Any) -> str:
    named = [f"{each.name}{'' if each._active.is_set() else ' (paused)'}" for each in node._timers]
    return f"  timers = {', '.join(named)}"


def _frames(coroutine: Any) -> Iterator[FrameType]:
    """The frames of a coroutine and of those that it waits for, the outermost first."""
    while (frame := getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)) is not None:
        yield frame
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)


def report(frame: FrameType | None) -> str:
    """What the app waits for: the stack of the main thread, the screens from the top, all tasks of asyncio.

    Raises:
        RuntimeError: no loop runs.
        StopIteration: there is no app.
    """
    stacks = {task: [*_frames(task.get_coro())] for task in asyncio.all_tasks()}
    app: Any = next(
        each for stack in stacks.values() for part in stack if isinstance(each := part.f_locals.get("self"), App)
    )
    lines = ["main thread:", *(line.rstrip() for line in traceback.format_stack(frame)), f"{app!r}"]
    lines += [*_fields(app, _APP), _timers(app)]
    for screen in reversed(app._screen_stack):
        lines += [f"{screen!r}", *_fields(screen, _SCREEN), _timers(screen)]
    for task in sorted(stacks, key=lambda each: each.get_name()):
        names = [part.f_code.co_name for part in stacks[task]]
        if names[-3:] != ["_get_message", "get", "wait"]:  # a widget that waits for a message
            places = [f"{Path(part.f_code.co_filename).name}:{part.f_lineno}" for part in stacks[task]]
            lines.append(f"task {task.get_name()}: {' > '.join(map(' '.join, zip(places, names, strict=True)))}")
    return "\n".join(lines) + "\n"


def _write(number: int, frame: FrameType | None) -> None:
    try:
        text = report(frame)
    except Exception:
        text = traceback.format_exc()
    Path(os.environ[INSPECTED_TO]).write_text(text, encoding="utf-8")


def run(start: Callable[[], None]) -> None:
    """Starts an app.

    Raises:
        SystemExit: it ended; with UNASKED if it ended without an error and without a call of its `exit`.
    """
    asked, leave = [], App.exit

    def noting_exit(app: App[Any], *arguments: Any, **named: Any) -> None:
        asked.append(app)
        leave(app, *arguments, **named)

    App.exit = noting_exit  # type: ignore[method-assign, assignment]
    try:
        start()
    except SystemExit as end:
        if end.code or asked:
            raise
    sys.exit(0 if asked else UNASKED)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _write)
    run(main)
