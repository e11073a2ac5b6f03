"""Entry point of `pkb-arena`: the command line, with the app.

Modules are imported only when needed: `pkb-arena list` loads no Textual, and `pkb-arena` alone loads no command line.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import contextmanager
from functools import partial

TYPE_CHECKING = False  # importing typing takes 6 ms, in which SIGINT would print a traceback
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType
    from typing import Any, NoReturn

    from arena.cli.display import ServePlan
    from arena.demo import DemoScript


def _leave(number: int, frame: FrameType | None) -> None:
    """Ends the process at once. Nothing has begun, and an exception in an import would print a traceback."""
    os._exit(128 + number)  # ExitCode.INTERRUPTED, whose import would come too late


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ends the process quietly on SIGINT meanwhile. Changes nothing if SIGINT is ignored or handled already."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio replaces only this one


def _open_app(problem: str = "", kernel: Path | None = None) -> int:
    gc.disable()  # imports leave no garbage; the app enables the collector again once it is open
    with _interruptible():
        from screens.app import run_app

    return run_app(problem, kernel)


def _open_alone() -> int:
    """Opens the app without the command line, which would take a tenth of the time to the first paint."""
    try:
        return _open_app()
    except (Exception, KeyboardInterrupt) as error:
        from arena.cli import exit_code_of

        return exit_code_of(partial(_raise, error))


def _raise(error: BaseException) -> NoReturn:
    raise error


def _play_demo(script: DemoScript, loop: bool) -> int:
    from screens.demo_app import run_demo

    return run_demo(script, loop)


def _record(*plan: Any) -> float:
    from screens.record import record

    return record(*plan)


def _serve(plan: ServePlan) -> int:
    from arena.errors import require_extra

    require_extra("web", "textual_serve", "serve needs textual-serve")
    from screens.web.server import serve

    return serve(plan)


def main(arguments: list[str] | None = None) -> None:
    """Runs a command, or the app when there is none; exits with the documented code."""
    os.umask(os.umask(0o077) & 0o077)  # a umask of 777 would refuse this program its own files
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if the parent ignores it, nobody learns how children end
    given = sys.argv[1:] if arguments is None else arguments
    streams = (sys.stdin, sys.stdout, sys.stderr)  # Textual draws on stderr
    if not given and all(stream is not None and stream.isatty() for stream in streams):
        sys.exit(_open_alone())
    with _interruptible():
        from arena.cli import main as run_command_line
        from arena.cli.display import Display

    run_command_line(arguments, Display(_open_app, _play_demo, _record, _serve))


if __name__ == "__main__":
    main()
