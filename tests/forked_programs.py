"""Forks programs for tests from a process that has imported their modules.

Imports take most of a short command's time. `python forked_programs.py FD MODULE...` imports the modules, then forks a
program for each request on FD.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

CommandLine = Callable[..., "subprocess.CompletedProcess[str]"]
REQUEST_BYTES = 1 << 20
COMMAND_LINE = """
import json, os, sys
if referee := os.environ.pop("PKB_TEST_REFEREE", ""):
    import arena.runs.engine
    arena.runs.engine.COMMAND = json.loads(referee)
from screens.main import main
main(sys.argv[1:])
"""
"""Runs the command line. PKB_TEST_REFEREE: the command that starts its referee, as JSON; unset: its usual referee."""


def read_problems_once() -> None:
    """Makes this process read the benchmark's problems once, and those that tests make each time."""
    catalogue = importlib.import_module("problems.catalogue")
    read, once = catalogue.load_problem, functools.cache(catalogue.load_problem)
    catalogue.load_problem = lambda folder: (once if folder.is_relative_to(catalogue.HOME) else read)(folder)
    catalogue.load_catalogue()


def search_path() -> str:
    """PYTHONPATH for subprocesses in other folders: this checkout, then the folders that PYTHONPATH has now."""
    root = str(Path(__file__).parents[1])
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([root, *(folder for folder in before if folder not in ("", root))])


def answer_of(done: "subprocess.CompletedProcess[str]") -> Any:
    """Returns what a command printed as JSON. It must have succeeded."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fails(done: "subprocess.CompletedProcess[str]", status: int, *words: str) -> None:
    """Asserts that a command ended with an exit status and said these words."""
    assert done.returncode == status, done.stderr
    assert [word for word in words if word not in done.stderr] == [], done.stderr


class Forked:
    """Starts programs; each is a process of its own, with its own environment, folder and output."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        """environment: read by the loader and the interpreter when they start. Programs get theirs in `run`."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                env={**environment, "PYTHONPATH": search_path()},
                pass_fds=[theirs.fileno()],
            )

    def run(
        self, program: str, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], timeout: float
    ) -> "subprocess.CompletedProcess[str]":
        """Runs Python source to its end, as `python -c` does. On a timeout kills it and raises TimeoutExpired."""
        asked = {"program": program, "arguments": arguments, "cwd": str(cwd), "environment": dict(environment)}
        with (
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            Path(os.devnull).open("rb") as nothing,
            contextlib.ExitStack() as stack,
        ):
            ours, theirs = map(stack.enter_context, socket.socketpair())
            files = [theirs.fileno(), nothing.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(self._socket, [json.dumps(asked).encode()], files)
            theirs.close()
            answers = stack.enter_context(ours.makefile())
            pid = int(answers.readline())
            ours.settimeout(timeout)
            try:
                status = int(answers.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(arguments), timeout) from None
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(list(arguments), status, out.read().decode(), err.read().decode())

    def close(self) -> None:
        """Ends the forking process; programs that still run continue."""
        self._socket.close()
        self._server.wait(60)


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Forks a process for each request. Returns the request in each child; None in this process when requests end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies: each child reports the exit status itself
    while True:
        message, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 4)
        if not message:
            return None
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            return _started(json.loads(message), files)
        for file in files:
            os.close(file)


def _started(asked: dict[str, Any], files: list[int]) -> dict[str, Any]:
    """Forks again: the parent waits for the program and reports its end, the child returns and becomes it."""
    asker, *standard = files
    pid = os.fork()
    if pid:
        with contextlib.suppress(BrokenPipeError), socket.socket(fileno=asker) as told:
            for file in standard:
                os.close(file)
            told.sendall(f"{pid}\n".encode())
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            told.sendall(f"{status}\n".encode())
        os._exit(0)
    os.close(asker)
    for target, file in enumerate(standard):
        os.dup2(file, target)
        os.close(file)
    return asked


def become(asked: dict[str, Any]) -> NoReturn:
    """Runs a program in this process and exits without freeing the interpreter's objects, which would take 0.1 s."""
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["cwd"])
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [path for path in given if path not in sys.path]
    sys.argv = ["-c", *asked["arguments"]]
    status: object = 0
    try:
        exec(compile(asked["program"], "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as error:
        status = error.code
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if status is not None and not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status or 0)


if __name__ == "__main__":
    for _name in sys.argv[2:]:
        importlib.import_module(_name)
    read_problems_once()
    assert threading.active_count() == 1, "what has threads cannot be forked"
    gc.freeze()  # keeps the memory pages of imported modules shared
    _asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if _asked is not None:
        become(_asked)
