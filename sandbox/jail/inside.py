"""The first program of a world without a PID namespace (profile nested): starts the world and kills it as a whole.

    inside PROGRAM ARGUMENT...

It applies the signal scope twice: once to itself, and once more to the world. So the world cannot signal this process, and this
process can signal nothing but the world. One kill(-1) therefore ends the whole world, and no fork escapes it. This process does
so on SIGTERM, when its parent ends, and when the world's first process ends.

It uses the standard library alone, because it runs before the world's import paths are set.
"""

import os
import signal
import sys
import traceback
from typing import NoReturn

from sandbox.jail import seccomp
from sandbox.machine.processes import adopt_orphans, die_with_parent

FAILED = 71


def main() -> NoReturn:
    """Starts PROGRAM, waits for its end, and exits with its status."""
    seccomp.restrict()
    _require_scope()
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda number, frame: _end(128 + number))
    die_with_parent(number=signal.SIGTERM)
    child = os.fork()
    if child == 0:
        try:
            _become(sys.argv[1:])
        except BaseException:
            traceback.print_exc()
        os._exit(FAILED)
    _close_descriptors()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _end(code if code >= 0 else 128 - code)


def _require_scope() -> None:
    """Raises OSError if this process may signal processes outside the world, because `_end` would kill them."""
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return
    raise OSError("the signal scope does not protect processes outside")


def _become(argv: list[str]) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent()
    seccomp.restrict()
    os.execvp(argv[0], argv)


def _end(code: int) -> NoReturn:
    """Kills the world, reaps it, and exits."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        while True:
            os.kill(-1, signal.SIGKILL)
            os.waitpid(-1, 0)
    except (ProcessLookupError, PermissionError, ChildProcessError):
        os._exit(code)


def _close_descriptors() -> None:
    """Closes all descriptors, because the referee must notice when the world closes its sockets and pipes."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


if __name__ == "__main__":
    main()
