"""The real app in a real pseudo-terminal, with the real engine, referee and ranks."""

import asyncio
import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import psutil
import pytest
from real_terminal import Screen, descendants
from textual.driver import Driver
from textual.widgets import Static
from waiting import PATIENCE_S, all_end, comes_true, eventually

from arena.paths import Paths
from arena.settings import Settings, save_settings
from arena.workspace.kernels import Workspace
from benchmarks.app.terminal import Terminal
from problems.catalogue import load_catalogue
from screens.terminal_app import TerminalApp

pytestmark = pytest.mark.slow

WRONG = """
import torch
import torch.distributed as dist


def solution(A_local, B_local):
    product = A_local @ B_local
    dist.all_reduce(product)
    if dist.get_rank() == dist.get_world_size() - 1:
        product[0, 5] += 1000
    return product
"""


@pytest.fixture
def kernel(paths: Paths) -> Path:
    """The kernel file of problem 13, written before the app starts. Settings: two CPU ranks, short measurements."""
    save_settings(Settings(device="cpu", world=2, live_s=0, seconds=0.1), paths)
    problem = load_catalogue().find("13")
    return Workspace(paths.workspace).create(problem, problem.baseline_source)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.long)])
def test_saved_kernel_is_judged_until_a_signal(kernel: Path, number: signal.Signals) -> None:
    """A kernel that is saved from outside is judged on the screen; a signal then restores the terminal and leaves no process."""
    with Screen("screens.main", "13") as app:
        app.shows("NOT RUN YET", "started)")
        other = kernel.with_suffix(".new")
        other.write_text(kernel.read_text() + "# saved elsewhere\n")
        os.replace(other, kernel)
        app.shows("✓ PASS", "rank 1 ✓", "finished: PASS")

        other.write_text(WRONG)
        os.replace(other, kernel)
        app.shows("✗ WRONG", "[0, 5]", "rank 1 ✗")
        children = descendants(app.process.pid)
        assert len(children) >= 3  # the referee and two worlds
        app.process.kill(number)
        assert app.ends() == 128 + number
        assert app.raw.rindex(b"\x1b[?1049l") > app.raw.rindex(b"\x1b[?1049h")  # back from the alternate screen
        assert app.raw.rindex(b"\x1b[?25h") > app.raw.rindex(b"\x1b[?25l")  # the cursor is shown
        all_end(children)


def waits_for(pid: int, number: signal.Signals) -> bool:
    """The process has a signal that it has not taken yet, because it is stopped."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(re.search(r"ShdPnd:\s*(\w+)", status)[1], 16) >> (number - 1) & 1)  # type: ignore[index]


@pytest.mark.further
def test_stopped_app_continues_then_ends_by_ctrl_c(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    with Screen("screens.main", "13") as app:
        app.shows("NOT RUN YET", "started)")
        for _ in range(3):
            app.process.kill(signal.SIGSTOP)
            before = len(app.raw)
            app.process.kill(signal.SIGCONT)
            eventually(lambda: app.read() or b"NOT RUN YET" in app.raw[before:])  # noqa: B023
        assert app.raw.count(b"\x1b[?1049h") == 1
        assert not re.search(rb"\x1b\[[\d;]*\x1b", app.raw)  # a sequence without its end
        app.process.kill(signal.SIGTSTP)
        eventually(lambda: app.read() or psutil.Process(app.process.pid).status() == psutil.STATUS_STOPPED)
        app.process.send("\x03")  # ctrl+c
        eventually(lambda: waits_for(app.process.pid, signal.SIGINT))  # the terminal passes a key on in its own time
        app.process.kill(signal.SIGCONT)
        assert app.ends() == 130


def test_app_that_quits_takes_terminal_no_more() -> None:
    taken: list[bool] = []
    app = TerminalApp()  # it does not run any more
    app._driver = cast(
        Driver, SimpleNamespace(_must_signal_resume=True, resume_application_mode=lambda: taken.append(True))
    )
    app._continued()
    app._resume()
    assert not taken


async def test_ctrl_z_waits_for_present_work() -> None:
    stopped: list[bool] = []
    app = TerminalApp()
    app._running = True
    app._driver = cast(Driver, SimpleNamespace(_sigtstp_application=lambda: stopped.append(True)))
    app._stopped()
    assert not stopped
    await asyncio.sleep(0)
    assert stopped


class SlowToEnd(Static):
    may_end: asyncio.Event
    ends: asyncio.Event

    async def on_unmount(self) -> None:
        self.ends.set()
        await self.may_end.wait()


async def test_cancelled_waits_do_not_end_app() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def remove(widget: SlowToEnd) -> None:
        await widget.remove()

    app = TerminalApp()
    async with app.run_test():
        await app.mount(widget := SlowToEnd())
        widget.may_end, widget.ends = asyncio.Event(), asyncio.Event()
        removal = app.run_worker(remove(widget))
        await widget.ends.wait()  # the app waits for the removal, too
        removal.cancel()
        await comes_true(lambda: removal.is_finished)
        widget.may_end.set()
        await comes_true(lambda: not app.query(SlowToEnd))
        assert app.is_running
        app.call_next(cancelled)
        app.call_next(called := Mock())
        await comes_true(lambda: called.called)
        assert app.is_running


def test_terminal_that_goes_away_takes_app_along(kernel: Path, paths: Paths) -> None:
    """The app is drawing: a sleeping kernel's phase clock. Its shell waits, as make does, and passes no hang-up on."""
    shell = ("sh", "-c", 'trap : HUP; "$@"; true', "sh")
    terminal = Terminal([*shell, sys.executable, "-P", "-m", "screens.main", "13"])
    children: list[psutil.Process] = []
    try:
        terminal.wait_for("started)", terminal.started)
        kernel.write_text("import time\ntime.sleep(100)\n")
        terminal.wait_for("load", time.monotonic())
        terminal.send("\x1b[?2026;2$y# unsaved")  # it knows synchronized output: three writes a picture
        terminal.wait_for("unsaved", time.monotonic())
        children = descendants(terminal.process.pid)
        os.close(terminal.master)
        all_end(children)
        assert "# unsaved" in str(Workspace(paths.workspace).draft(kernel))
    finally:
        for each in [terminal.process, *children]:
            with suppress(psutil.NoSuchProcess):
                each.kill()


STUCK = """
import time
from screens import terminal_app

class Stuck(terminal_app.TerminalApp):
    def on_ready(self) -> None:
        print("stuck", file=open("/dev/tty", "w"))
        time.sleep(1000)

terminal_app.LEAVE_S = 0.2
Stuck().run_to_end()
"""


QUITTING = """
from screens import terminal_app

class Quitting(terminal_app.TerminalApp):
    async def late(self) -> None: ...

    def on_ready(self) -> None:
        self.run_worker(self.late()).cancel()
        self.exit(message="left")

Quitting().run_to_end()
"""


SUSPENDED = """
from screens import terminal_app

class Suspended(terminal_app.TerminalApp):
    def on_ready(self) -> None:
        self.app_resume_signal.subscribe(self, lambda _: self.exit(message="continued"))
        self.action_suspend_process()

Suspended().run_to_end()
"""


def test_suspended_app_gives_shell_the_terminal(tmp_path: Path) -> None:
    makefile = tmp_path / "Makefile"
    makefile.write_text('start:\n\t@"$(PYTHON)" -c "$$SUSPENDED"\n')
    variables = {"PYTHON": sys.executable, "SUSPENDED": SUSPENDED}
    terminal = Terminal(["bash", "-mc", f"make -sf {makefile}; echo prompt; fg"], variables)
    try:
        terminal.wait_for("continued", terminal.started)
        before, prompt, _ = terminal.drawn.partition(b"prompt")
        assert prompt
        assert before.rindex(b"\x1b[?1049l") > before.rindex(b"\x1b[?1049h")  # back from the alternate screen
    finally:
        terminal.process.kill()


def test_work_cancelled_before_its_begin_is_silent() -> None:
    terminal = Terminal([sys.executable, "-c", QUITTING])
    try:
        terminal.wait_for("left", terminal.started)
        terminal.read_until(b"never awaited", 1.0)
        assert b"never awaited" not in terminal.drawn
    finally:
        terminal.process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_app_whose_loop_is_blocked(number: signal.Signals) -> None:
    terminal = Terminal([sys.executable, "-c", STUCK])
    try:
        terminal.wait_for("stuck", terminal.started)
        terminal.process.send_signal(number)
        assert terminal.process.wait(PATIENCE_S) == 128 + number
    finally:
        terminal.process.kill()


@pytest.mark.further
def test_run_goes_on_while_other_editor_has_terminal(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sleeping kernel's phase clock changes ten times a second. None of 30 or more changes may be drawn."""
    editor = tmp_path / "my-editor"
    editor.write_text(
        "#!/bin/sh\n"
        "trap '' INT QUIT TSTP\n"
        'echo "EDITING $1"\nread answer\necho "# $answer" >> "$1"\n'
        'printf "import time\\ntime.sleep(100)\\n" >> "$1"\n'
        "for n in 1 2 3; do echo OUTSIDE $n; sleep 1; done\n"
        'echo "# saved a second time" >> "$1"\n'
    )
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    with Screen("screens.main", "13") as app:
        app.shows("NOT RUN YET", "started)")
        app.process.send("\x1bOQ")  # F2
        app.shows("EDITING")
        app.process.send("\x03\x1c\x1a")  # ctrl+c, ctrl+\, ctrl+z: signals, as a child of an editor reads them
        app.process.send("from outside\r")
        app.shows("OUTSIDE 3")
        assert b"\x1b" not in app.raw[app.raw.index(b"OUTSIDE 1") : app.raw.index(b"OUTSIDE 3")]
        app.shows("# from outside", "# saved a second time", "load", "esc twice cancels")
        while b"CANCELLED" not in app.raw:  # two of these keys come within 1.5 s, however busy the machine is
            app.process.send("\x1b")
            for _ in range(5):  # each takes 0.2 s at most
                app.read()
        app.process.send("\x11")
        assert app.ends() == 0


def test_wrong_bytes_end_nothing_in_ones_own_kernel(kernel: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(kernel.read_text() + "# of my own\n")
    with Screen("screens.main", "13", str(mine)) as app:
        app.shows("mine.py")
        app.process.send(b"\xed\xa0\x80\xff")
        app.process.send("\x1b[48;45;160;0;0t\x1b[<0;9;9M\x1b[<0;9;9m")  # a size of 0 pixels, and a click
        app.process.send("hello")
        app.shows("hello")
        assert b"\x1b[?1049l" not in app.raw  # on the alternate screen
        app.process.send("\x11\x11")  # ctrl+q
        assert app.ends() == 0
