"""Measurements of the app's speed, from outside in a real pseudo-terminal or inside its event loop, with their limits.

    python -m benchmarks.app.measurements first-paint|loop-lag|keystroke|tokens [REPETITIONS]

Each runs in a process of its own, which prints an object of figures, in milliseconds. Everything happens in a temporary
folder, so the user's kernels are not touched.
"""

import asyncio
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from arena.errors import MachineError
from arena.paths import HOME_VARIABLE, ROOT, Paths, module_command, module_environment, paths_in
from benchmarks.app.terminal import COLUMNS, LINES, Terminal, lag_while, until
from benchmarks.figure import Figure

GIVE_UP_S = 600.0
END_S = 15.0
"""Time limit in seconds to close the app that is measured."""
PROBLEM = "13"
KERNEL_LINES = 1_000
READY = "processes started"
"""What the kernel screen shows once its worlds are ready."""
LINE_KEYS = 40
"""Keys that are typed into a line before it is emptied again, so that all of it stays visible."""


@contextlib.contextmanager
def home_of_its_own() -> Iterator[tuple[Paths, dict[str, str]]]:
    """Yields a folder with settings, so that no welcome is shown, and the variables of an app that uses it."""
    from arena.settings import Settings, save_settings

    with tempfile.TemporaryDirectory(prefix="pkb-measure-") as folder:
        paths = paths_in(Path(folder))
        save_settings(Settings(), paths)
        yield paths, {HOME_VARIABLE: folder}


BARE_APP = """
from textual.app import App
from textual.widgets import Label
class Bare(App):
    def compose(self):
        yield Label("bare app")
Bare().run()
"""


def first_paint(repetitions: int) -> dict[str, float]:
    """Times from the start of the interpreter to the first frame of the start screen, and to the list of problems.

    The starts alternate with those of a Textual app of one word, which no Textual app can beat on this machine. The
    first start of both does not count, because bytecode may be missing and files are not cached.
    """
    painted, listed, bare = [], [], []
    for _ in range(repetitions + 1):
        with home_of_its_own() as (_, variables):
            variables["PYTHONDONTWRITEBYTECODE"] = ""  # an installed program has its bytecode, too
            terminal = Terminal([sys.executable, "-P", "-c", BARE_APP], variables)
            try:
                bare.append(terminal.wait_for("bare app", terminal.started))
            finally:
                terminal.close()
            terminal = Terminal([sys.executable, "-P", "-m", "screens.main"], variables)
            try:
                painted.append(terminal.wait_for("Parallelism", terminal.started))
                listed.append(terminal.wait_for("all-reduce", terminal.started))
            finally:
                terminal.close()
    del painted[0], listed[0], bare[0]
    return {
        **_figures(painted),
        "problems_median_ms": statistics.median(listed) * 1e3,
        "bare_median_ms": statistics.median(bare) * 1e3,
    }


def keystroke(repetitions: int) -> dict[str, float]:
    """Times from a key to its effect on the kernel screen, with a kernel of 1000 lines and idle worlds."""
    from arena.workspace.kernels import Workspace
    from problems.catalogue import load_catalogue

    took = []
    with home_of_its_own() as (paths, variables):
        source = load_catalogue().find(PROBLEM).baseline_source
        body = "".join(f"\n\ndef helper_{n}(x):\n    return x * {n} + 1  # line\n" for n in range(KERNEL_LINES // 5))
        workspace = Workspace(paths.workspace)
        workspace.save(workspace.kernel_path(load_catalogue().find(PROBLEM)), source + body)
        terminal = Terminal([sys.executable, "-P", "-m", "screens.main", PROBLEM], variables)
        try:
            terminal.wait_for(READY, terminal.started)
            terminal.quiet(0.3)
            for number in range(repetitions):
                typed = number % LINE_KEYS
                if number and not typed:
                    os.write(terminal.master, b"\x7f" * LINE_KEYS)
                    terminal.quiet(1.0)
                terminal.drawn = b""
                pressed = time.monotonic()
                os.write(terminal.master, b"z")
                took.append(terminal.wait_for("z" * (typed + 1), pressed))
                terminal.quiet(0.1)
        finally:
            terminal.close()
    return _figures(took)


def loop_lag(repetitions: int) -> dict[str, float]:
    """Delays of the app's event loop while two ranks run a kernel."""
    with home_of_its_own() as (paths, _):
        late = asyncio.run(_lag_while_running(paths, repetitions))
    return _figures(late)


async def _lag_while_running(paths: Paths, runs: int) -> list[float]:
    from screens.app import ArenaApp
    from screens.kernel.screen import KernelScreen
    from screens.services import Services

    services = Services(paths)
    app = ArenaApp(services, PROBLEM)
    late: list[float] = []
    try:
        async with app.run_test(size=(COLUMNS, LINES)) as pilot:
            await until(lambda: isinstance(app.screen, KernelScreen))
            screen = app.screen
            assert isinstance(screen, KernelScreen)
            state = screen.session.state
            await until(lambda: "spare" in state.worlds and state.worlds["spare"].state == "ready")
            for _ in range(runs):
                await pilot.press("f5")
                await until(lambda: screen.session.busy)
                late += await lag_while(lambda: screen.session.busy)
    finally:
        await services.close()
    return late


def tokens(seconds: int) -> dict[str, float]:
    """Delays of the event loop while a model writes 1000 tokens a second in a duel."""
    from benchmarks.app.token_lag import lag_while_written

    with home_of_its_own() as (paths, _):
        return _figures(lag_while_written(paths, seconds))


def _figures(values: list[float]) -> dict[str, float]:
    ordered = sorted(value * 1e3 for value in values)
    return {
        "median_ms": statistics.median(ordered),
        "p95_ms": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
        "p99_ms": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        "max_ms": ordered[-1],
        "count": len(ordered),
    }


@dataclass(frozen=True)
class Promise:
    """One measurement, how often it is made, and the limit for one of its figures."""

    measure: Callable[[int], dict[str, float]]
    repetitions: int
    """How often; runs for loop-lag, seconds for tokens."""
    words: str
    promised: str
    """ "median", "p95" or "p99"."""
    limit_ms: float


PROMISES = {
    "first-paint": Promise(first_paint, 10, "first paint", "median", 300.0),
    "loop-lag": Promise(loop_lag, 5, "event loop late", "p99", 16.0),
    "keystroke": Promise(keystroke, 100, "key to screen", "p95", 20.0),
    "tokens": Promise(tokens, 10, "event loop late", "p99", 50.0),
}
TIMES_BARE = 1.15
"""Limit for first paint as a multiple of that of a Textual app of one word. It does not depend on the machine's
speed."""


async def measure(name: str, repetitions: int | None) -> list[Figure]:
    """One measurement as figures. repetitions: None: the measurement's own number.

    Raises:
        MachineError: it failed, or its output cannot be read.
    """
    promise, found = PROMISES[name], await _measured(name, repetitions)
    value = found[f"{promise.promised}_ms"]
    others = "median {median_ms:.1f}, p95 {p95_ms:.1f}, p99 {p99_ms:.1f}, slowest {max_ms:.1f}".format(**found)
    detail = f"of {found['count']:.0f}: {others}"
    figures = [Figure(f"{promise.words} ({promise.promised})", value, "ms", promise.limit_ms, detail)]
    if "bare_median_ms" in found:
        bare = f"the same of a Textual app of one word, in turns: {found['bare_median_ms']:.0f} ms"
        figures.append(Figure("  times bare Textual", value / found["bare_median_ms"], "", TIMES_BARE, bare))
    if "problems_median_ms" in found:
        figures.append(Figure("  list of problems (median)", found["problems_median_ms"], "ms"))
    return figures


async def _measured(name: str, repetitions: int | None) -> dict[str, float]:
    process = await asyncio.create_subprocess_exec(
        *module_command("benchmarks.app.measurements", name, str(repetitions or "")),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=module_environment(),
    )
    try:
        async with asyncio.timeout(GIVE_UP_S):
            stdout, stderr = await process.communicate()
    except TimeoutError:
        raise MachineError(f"{name} took more than {GIVE_UP_S:.0f} s", "try again on a quiet machine") from None
    finally:
        if process.returncode is None:
            await _end(process)
    if process.returncode != 0:
        said = stderr.decode(errors="replace").strip().splitlines()
        raise MachineError(f"{name} could not be measured: {said[-1] if said else 'no reason given'}")
    try:
        return msgspec.json.decode(stdout, type=dict[str, float])
    except msgspec.MsgspecError as error:
        raise MachineError(f"{name} could not be read: {error}") from None


async def _end(process: asyncio.subprocess.Process) -> None:
    """Interrupts a measurement so that it closes its app; kills it if that takes too long."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await process.wait()
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def main(name: str, repetitions: str = "") -> int:
    """Entry point of a measurement's process."""
    promise = PROMISES[name]
    try:
        print(json.dumps(promise.measure(int(repetitions or promise.repetitions))))
    except TimeoutError as error:
        print(error or "nothing happened in time", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
