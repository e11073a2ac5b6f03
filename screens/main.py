"""Entry point of `pkb-arena`: the command line, with the app and the measurements of it.

Nothing of either is imported before it is asked for: `pkb-arena list` loads no Textual.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from arena.cli import main as run_command_line
from arena.cli.display import Display

if TYPE_CHECKING:
    from arena.bench.figure import Figure
    from arena.paths import Paths

MEASUREMENTS = ("first-paint", "loop-lag", "keystroke", "tokens")
"""What `screens.measure` offers to `doctor --bench`."""


def _open_app(problem: str) -> int:
    from screens.app import run_app

    return run_app(problem)


async def _measure(name: str, paths: Paths, repetitions: int | None) -> list[Figure]:
    from screens.measure.promises import measure

    return await measure(name, repetitions)


def main(arguments: list[str] | None = None) -> None:
    """Runs a command, or the app when there is none; exits with the documented code."""
    measurements = {name: partial(_measure, name) for name in MEASUREMENTS}
    run_command_line(arguments, Display(_open_app, measurements))


if __name__ == "__main__":
    main()
