"""Types that the display passes to the command line. The engine does not import its display."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from arena.cli.record import RecordPlan
    from arena.cli.serve_plan import ServePlan
    from arena.demo.script import DemoScript


@dataclass(frozen=True)
class Display:
    """Passed to `arena.cli.main` by a program that can draw. Without one, commands work and the app does not open."""

    open_app: Callable[[str], int] | None = None
    """Runs the app until it is left, opened at a problem (its slug) or, for "", at the list. Returns the exit code."""
    play_demo: Callable[[DemoScript, bool], int] | None = None
    """Plays a demo until it is over or left; True: from its end to its start again. Returns the exit code."""
    record: Callable[[RecordPlan], float] | None = None
    """Writes a run or a duel as a file that plays. Returns its length in seconds."""
    serve: Callable[[ServePlan], int] | None = None
    """Serves the app to browsers until it is interrupted. Returns the exit code."""


def display_of(ctx: click.Context) -> Display:
    """The display that this command line was started with."""
    return ctx.find_object(Display) or Display()
