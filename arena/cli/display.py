"""The command line and the program that draws: the types that they pass to each other, and how signals end a command.

The engine does not import its display.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from arena.errors import UsageError
from sandbox.protocol.verdict import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from arena.demo import DemoScript

T = TypeVar("T")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class ServePlan:
    """The options of `pkb-arena serve`: address, users and time limits."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0: any free port."""
    problem: str = ""
    """Slug of the problem that the owner's app opens; empty: the list."""
    owner: bool = True
    """False: only spectators."""
    spectators: int = 8
    """Maximum number at the same time."""
    keep_s: float = 600.0
    """Seconds for which the owner's app continues while no browser shows it."""
    passed_on: tuple[str, ...] = ()
    """Environment variables that the owner's app gets in addition to those it needs."""


@dataclass(frozen=True)
class Display:
    """Passed to `arena.cli.main` by a program that can draw. Without one, commands work and the app does not open."""

    open_app: Callable[[str, Path | None], int] | None = None
    """Runs the app at a problem (its slug) and a kernel of it, or at the list for "", until the user quits.

    Without a kernel the app opens the workspace's. Returns the exit code.
    """
    play_demo: Callable[[DemoScript, bool], int] | None = None
    """Plays a demo to its end, repeatedly if True, or until the user quits. Returns the exit code."""
    record: Callable[..., float] | None = None
    """Writes a run or a duel as a recording: `screens.record.record`. Returns its length in seconds."""
    serve: Callable[[ServePlan], int] | None = None
    """Serves the app to browsers until it is interrupted. Returns the exit code."""


def display_of(ctx: click.Context) -> Display:
    """Returns the display that this command line was started with."""
    return ctx.find_object(Display) or Display()


def drawn_by(action: T | None, words: str) -> T:
    """Returns the display's action. Raises UsageError without one. words: advice, as "play it with `...`"."""
    if action is None:
        raise UsageError("this is the command line without the app", words)
    return action


def on_a_terminal() -> bool:
    """Returns whether stdin, stdout and stderr are all terminals. Textual draws on stderr."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_interruptibly(main: Coroutine[object, object, T]) -> T:
    """Runs `main` to its end in a new event loop and returns its result.

    Raises:
        KeyboardInterrupt: a signal arrived; `main` was cancelled and has cleaned up.
    """

    import asyncio  # takes time that `list` does not need

    async def watched() -> T:
        loop = asyncio.get_running_loop()
        task = loop.create_task(main)
        signalled = False

        def interrupt() -> None:
            nonlocal signalled
            if signalled:  # exit at the second signal: the referee ends its worlds when its pipe closes
                os._exit(ExitCode.INTERRUPTED)
            signalled = True
            task.cancel()

        for number in SIGNALS:
            loop.add_signal_handler(number, interrupt)
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    return asyncio.run(watched())
