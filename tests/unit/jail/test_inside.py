"""The first program of a world without a PID namespace: it ends the world as a whole, and nothing else."""

import contextlib
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from no_jail import no_jail
from waiting import PATIENCE_S, eventually

from sandbox.jail import inside, seccomp
from sandbox.jail.choice import why_not
from sandbox.jail.profiles import NESTED, Wrapped
from sandbox.jail.seccomp import NoFilter, build_filter, memory_file
from sandbox.machine.processes import tree
from sandbox.worlds.world_process import ask_to_end

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program() -> bytes:
    try:
        program = build_filter("nested")
    except NoFilter as error:
        no_jail([str(error)])
    if not seccomp.is_available():
        is_old = tuple(map(int, platform.release().split(".")[:2])) < (6, 12)
        no_jail(["this kernel cannot restrict signals" if is_old else "Landlock is off, or asked for wrongly"])
    reason = why_not(NESTED, program)
    if reason is not None:
        no_jail([reason])
    return program


def wrap(text: str, folder: Path, program: bytes) -> Wrapped:
    argv = [sys.executable, "-I", "-c", text]
    return NESTED.wrap(argv, folder, {"MARK": str(folder)}, filter_fd=memory_file(program))


def run(text: str, folder: Path, program: bytes) -> "subprocess.CompletedProcess[str]":
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": PATIENCE_S}
    with contextlib.closing(wrap(text, folder, program)) as wrapped:
        return subprocess.run(wrapped.argv, **wrapped.inherited, cwd=folder, check=False, **options)


def test_the_exit_status_is_the_programs(program: bytes, tmp_path: Path) -> None:
    moves = "import os\nos.mkdir('/tmp/sub')\nopen('/tmp/x', 'w').close()\nos.rename('/tmp/x', '/tmp/sub/x')\n"
    signals = "try:\n    os.kill(os.getppid(), 0)\nexcept PermissionError:\n    raise SystemExit(7)"  # what keeps it
    assert run(moves + signals, tmp_path, program).returncode == 7


def test_program_that_cannot_start_is_told(program: bytes, tmp_path: Path) -> None:
    with contextlib.closing(NESTED.wrap(["/no/such"], tmp_path, {}, filter_fd=memory_file(program))) as wrapped:
        done = subprocess.run(wrapped.argv, **wrapped.inherited, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1].partition(":")[0]) == (inside.FAILED, "FileNotFoundError")


def test_killing_everything_kills_its_own_world_alone(program: bytes, tmp_path: Path) -> None:
    text = "import os, signal\nif os.fork() == 0: os.kill(-1, signal.SIGKILL)\nos.wait()\nprint('lives')"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as bystander:
        try:
            done = run(text, tmp_path, program)
            assert done.returncode == 128 + signal.SIGKILL
            assert done.stdout == ""
            assert bystander.poll() is None
        finally:
            bystander.kill()


RUNS_AWAY = """
import os, time
if os.fork() == 0:
    os.setsid()
    while True:  # always a child of a process that is gone
        if os.fork():
            os._exit(0)
print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGKILL])
def test_fork_bomb_is_ended_as_such(program: bytes, tmp_path: Path, asked: signal.Signals) -> None:
    """It ends when asked to, and by itself when its first process is killed."""
    wrapped = wrap(RUNS_AWAY, tmp_path, program)
    mark = f"MARK={tmp_path}".encode()
    with subprocess.Popen(wrapped.argv, **wrapped.inherited, stdout=subprocess.PIPE, text=True) as process:
        wrapped.close()
        first = int(process.stdout.readline())
        assert len(marked(mark)) >= 2
        if asked == signal.SIGTERM:
            ask_to_end(lambda: tree(process.pid))
        else:
            os.kill(first, asked)
        assert process.wait(PATIENCE_S) in (-signal.SIGTERM, 128 + signal.SIGKILL)  # bubblewrap gets the signal, too
    assert marked(mark) == []


def test_world_ends_with_the_program_that_keeps_it(program: bytes, tmp_path: Path) -> None:
    wrapped = wrap("import os, time\nprint(os.getppid(), flush=True)\ntime.sleep(600)", tmp_path, program)
    assert "from sandbox.jail.inside import main" in " ".join(wrapped.argv)
    with subprocess.Popen(wrapped.argv, **wrapped.inherited, stdout=subprocess.PIPE, text=True) as process:
        wrapped.close()
        os.kill(int(process.stdout.readline()), signal.SIGKILL)
    eventually(lambda: not marked(f"MARK={tmp_path}".encode()))


def marked(mark: bytes) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes():
                found.append(entry.name)
    return found


def test_an_old_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "is_available", lambda: False)
    with pytest.raises(OSError, match=r"Linux 6\.12 with Landlock is needed"):
        seccomp.restrict()
