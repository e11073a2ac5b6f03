"""Draws the documents' pictures of the app, each in its dark and its light theme, with 160 and with 100 columns.

    python docs/pictures.py                     all of them, into docs/pictures; minutes
    python docs/pictures.py arena duel          some; of journals, in seconds: arena, arena-gpu, duel, duel-gpu, demo, ncu
    python docs/pictures.py arena-run           the journal of `arena` anew (run.jsonl), on a quiet machine
    python docs/pictures.py demo-gpu            on a machine with GPUs: live duels for ten minutes

The real app: `arena` is a run of one of the kit's examples (run.jsonl), `arena-gpu` one of a house kernel on two H200
(run-gpu.jsonl), `duel` and `duel-gpu` are the ends of recorded duels (duel.jsonl, duel-gpu.jsonl), `model` and `improve` have a
stand-in for a model write (stand_in.py), `profile` profiles an example on two CPU ranks. `board` has results of a sweep on CPU
ranks, and draws `bound`, the same against the roofline. `folder` runs a kernel of several files, `void` voids a result. `pages`
has the stand-in answer, and opens what `pkb-arena export --html` writes in Chromium, which must be installed. `ncu` shows what
`pkb-arena profile --ncu` printed on a machine with a GPU (benchmarks/2xH100).
"""

import asyncio
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, MONOKAI
from stand_in import FORGETS_THE_BARRIER, GATHERS, HALVES, NAME, RIGHT, Script, serve

from benchmarks.kernels import kernel_paths

HERE = Path(__file__).resolve().parent
EXAMPLE = kernel_paths()["gemm_allreduce_cpp"]
FOLDER = HERE.parent / "tests" / "ranks" / "folders" / "all_reduce"
TARGET = HERE / "pictures"
SHOWN = Path(tempfile.gettempdir()) / "pkb-arena"
"""Where kernels lie: their paths are in the pictures."""
SIZES = ((160, 42), (100, 34))
THEMES = ("dark", "light")
BUDGET_S = 3.0
DEMO_S = 600.0
PATIENCE_S = 240.0


@asynccontextmanager
async def opened(
    settings: Any,
    problem: str = "",
    kernel: Path | None = None,
    commands: Sequence[Sequence[str]] = (),
    run: Path | None = None,
) -> AsyncIterator[tuple[Any, Any]]:
    """The app over folders of its own, and its pilot.

    commands: of `pkb-arena`, run in these folders before. run: the journal of a run that counts as the user's.
    """
    from arena.paths import find_paths
    from arena.records.header import read_header
    from arena.settings import save_settings
    from screens.app import ArenaApp
    from screens.services import Services

    os.environ["PKB_ARENA_HOME"] = tempfile.mkdtemp()
    save_settings(settings, find_paths())
    if run is not None:
        find_paths().runs.mkdir(parents=True)
        text = run.read_text(encoding="utf-8").replace('"player":"house"', '"player":"you"')
        (find_paths().runs / f"{read_header(run).run_id}.jsonl").write_text(text, encoding="utf-8")
    for command in commands:
        subprocess.run([sys.executable, "-m", "screens.main", *command], check=True)
    services = Services(find_paths())
    app = ArenaApp(services, problem, kernel)
    try:
        async with app.run_test(size=SIZES[0]) as pilot:
            await app.opened.wait()
            await pilot.pause(1.0)
            yield app, pilot
    finally:
        await services.close()


async def until(pilot: Any, condition: Callable[[], bool]) -> None:
    """Lets the app go on until something is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await pilot.pause(0.1)


def kernel_file(text: str) -> Path:
    """A kernel of one file."""
    SHOWN.mkdir(exist_ok=True)
    path = SHOWN / "kernel.py"
    path.write_text(text, encoding="utf-8")
    return path


def with_stand_in(*answers: str) -> Any:
    """Settings with a model that gives these answers."""
    from arena.settings import ModelSettings, Settings

    model = ModelSettings(
        provider="openai_chat", model=NAME, base_url=serve(list(answers)), tools=False, price_in=5.0, price_out=25.0
    )
    return Settings(device="cpu", world=2, seconds=BUDGET_S, models={NAME: model})


async def judge(app: Any, pilot: Any) -> None:
    """Runs the kernel in the editor to its verdict."""
    await pilot.press("f5")
    await pilot.pause(0.5)
    await until(pilot, lambda: not app.screen.session.busy)


async def draw(app: Any, pilot: Any, name: str) -> None:
    """What is on the screen, in every size and theme."""
    TARGET.mkdir(exist_ok=True)
    for columns, lines in SIZES:
        await pilot.resize_terminal(columns, lines)
        for theme in THEMES:
            app.theme = theme
            app.clear_notifications()
            await pilot.pause(1.0)
            text = app.export_screenshot(title="pkb-arena")
            # The folders of the person who draws do not belong into the picture.
            text = text.replace(os.environ["PKB_ARENA_HOME"], "~")
            (TARGET / f"{name}-{theme}-{columns}.svg").write_text(text, encoding="utf-8")


async def arena(name: str = "arena", path: Path = HERE / "run.jsonl") -> None:
    """A kernel with its verdict, from the journal of its run."""
    from arena.records.header import read_events, read_header
    from arena.settings import Settings

    header = read_header(path)
    kernel = kernel_file(header.kernel.source)
    async with opened(Settings(device="cpu", world=2), str(header.problem_id), kernel, run=path) as (app, pilot):
        app.screen.session.setting = lambda: header.setting  # this machine may have no such devices
        for event in read_events(path):
            app.screen.apply(event)
        await draw(app, pilot, name)


async def arena_run() -> None:
    """Writes the journal that `arena` draws: the second run of an example, because the first one compiles it."""
    from arena.paths import find_paths
    from arena.settings import Settings

    run = ["run", "13", str(kernel_file(EXAMPLE.read_text(encoding="utf-8"))), "--device", "cpu", "--world", "2"]
    async with opened(Settings(seconds=BUDGET_S), commands=[run, run]):
        text = max(find_paths().runs.iterdir()).read_text(encoding="utf-8")
        (HERE / "run.jsonl").write_text(text.replace(f"{HERE.parent}/", ""), encoding="utf-8")


async def duel(name: str = "duel", path: Path = HERE / "duel.jsonl", before_end: bool = False) -> None:
    """The end of a recorded duel, or the last event before it."""
    from arena.duel.journal import read_duel_header
    from arena.settings import Settings
    from screens.duel.replay import ReplayDuelScreen

    async with opened(Settings()) as (app, pilot):
        app.push_screen(ReplayDuelScreen(app, path, read_duel_header(path)))
        await pilot.pause(1.0)
        await pilot.press("end")
        if before_end:
            await pilot.pause(2.0)
            await pilot.press("left")
            await pilot.pause(1.0)
        else:
            await until(pilot, lambda: app.screen.state.ended is not None)
        await draw(app, pilot, name)


async def model() -> None:
    """A stand-in for a model that writes its third kernel."""
    from screens.model import ModelScreen

    Script.hold, Script.pause_s = Event(), 0.03
    async with opened(with_stand_in(FORGETS_THE_BARRIER, RIGHT, HALVES), "1") as (app, pilot):
        await pilot.press("f7")
        await until(pilot, lambda: bool(app.screen.query("#start")))
        await pilot.pause(1.0)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ModelScreen))
        screen = app.screen
        state = screen.session.state
        # Its last words are shown with the next ones that come.
        await until(pilot, lambda: len(state.kernels) == 2 and len(state.text) > 0.8 * len(HALVES))
        await draw(app, pilot, "model")
        Script.hold.set()
        await pilot.press("s")
        await until(pilot, lambda: screen.session.over)


async def improve() -> None:
    """A kernel in the editor that a stand-in for a model has improved, timed against the one that it started from."""
    from screens.model import ModelScreen

    Script.hold, Script.pause_s = None, 0.0
    async with opened(with_stand_in(RIGHT), "1", kernel_file(GATHERS)) as (app, pilot):
        await judge(app, pilot)
        await pilot.press("f7")
        await until(pilot, lambda: bool(app.screen.query("#from")))
        app.screen.query_one("#from").value = True
        app.screen.query_one("#answers").value = "1"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ModelScreen) and app.screen.session.over)
        await pilot.pause(1.0)
        await draw(app, pilot, "improve")


async def profile() -> None:
    """Why a kernel is slow: the lanes of the ranks of an example that adds up in torch."""
    from arena.settings import Settings
    from screens.profile import ProfileScreen

    kernel = kernel_file(kernel_paths()["gemm_allreduce"].read_text(encoding="utf-8"))
    async with opened(Settings(device="cpu", world=2, seconds=BUDGET_S), "13", kernel) as (app, pilot):
        await judge(app, pilot)
        await pilot.press("f18")
        await until(pilot, lambda: isinstance(app.screen, ProfileScreen) and app.screen.found is not None)
        await draw(app, pilot, "profile")


async def board() -> None:
    """The board after a sweep of some problems by the house kernels and the baseline, and the same against the bound."""
    from arena.settings import Settings
    from screens.picker.board import BoardDialog

    sweep = ["sweep", "--problems", "1,2,13,44,58", "--players", "house,baseline", "--world", "2", "--device", "cpu"]
    commands = [["calibrate", "--device", "cpu", "--world", "2"], sweep]
    async with opened(Settings(device="cpu", world=2, seconds=1.0), "", None, commands) as (app, pilot):
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, BoardDialog) and app.screen.standings)
        await draw(app, pilot, "board")
        await pilot.press(*["f3"] * 3)
        await draw(app, pilot, "bound")


async def folder() -> None:
    """A kernel of several files with its verdict, and the history with the files that changed."""
    from arena.settings import Settings

    kernel = SHOWN / "all_reduce"
    shutil.copytree(FOLDER, kernel, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    async with opened(Settings(device="cpu", world=2, seconds=BUDGET_S), "1", kernel) as (app, pilot):
        await judge(app, pilot)
        file = kernel / "ops" / "slices.h"
        file.write_text(
            file.read_text(encoding="utf-8").replace("(n + world - 1) / world", "n / world"), encoding="utf-8"
        )
        await until(pilot, lambda: app.screen.session.busy)  # it is judged because a file beside kernel.py was saved
        await until(pilot, lambda: not app.screen.session.busy)
        await pilot.press("f6")
        await until(pilot, lambda: len(getattr(app.screen, "entries", [])) > 1)
        await pilot.press("down", "space")
        await pilot.pause(2.0)
        await draw(app, pilot, "folder")


async def void() -> None:
    """The results of a problem, one of them voided."""
    from arena.models.conversation import EXAMPLES
    from arena.settings import Settings
    from screens.dialogs.runs import RunsDialog
    from screens.dialogs.void import VoidDialog

    at = ["--world", "2", "--device", "cpu"]
    kernels = (EXAMPLES / "any_allreduce.py", kernel_paths()["allreduce_two_shot"])
    commands = [["run", "1", str(kernel), *at] for kernel in kernels]
    async with opened(Settings(device="cpu", world=2, seconds=1.0), "", None, commands) as (app, pilot):
        await pilot.press("b")
        await until(pilot, lambda: bool(getattr(app.screen, "standings", None)))
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, RunsDialog) and len(app.screen.entries) == len(commands))
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, VoidDialog))
        await pilot.press(*"another job ran on this machine", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunsDialog) and any(e.voided for e in app.screen.entries))
        await draw(app, pilot, "void")


async def pages() -> None:
    """The page of an attempt, in a browser: an agent whose first kernel is wrong and whose second is right."""
    Script.hold, Script.pause_s = None, 0.0
    written = Path(tempfile.mkdtemp()) / "pages"
    attempt = ["agent", "1", "--model", NAME, "--steps", "2", "--world", "2", "--device", "cpu"]
    commands = [attempt, ["export", "--html", str(written)]]
    async with opened(with_stand_in(FORGETS_THE_BARRIER, RIGHT), "", None, commands):
        (page,) = (written / "attempts").iterdir()
    picture = TARGET / "page.png"
    browser = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1100,1500"]
    subprocess.run([*browser, f"--screenshot={picture}", page.as_uri()], check=True, timeout=PATIENCE_S)


async def ncu() -> None:
    """What ncu found of a house kernel, as a terminal of that machine showed it."""
    lines = (HERE.parent / "benchmarks" / "2xH100" / "ncu-houses.txt").read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("61 "))
    for columns, _ in SIZES:
        for theme, colours in (("dark", MONOKAI), ("light", DEFAULT_TERMINAL_THEME)):
            console = Console(record=True, width=columns, file=io.StringIO())
            console.print(
                "$ pkb-arena profile 61 house --ncu --world 1", *lines[first:], sep="\n", markup=False, highlight=False
            )
            console.save_svg(str(TARGET / f"ncu-{theme}-{columns}.svg"), title="pkb-arena profile --ncu", theme=colours)


async def demo() -> None:
    """The race of a recorded duel on the stage of a demo."""
    from arena.demo import DemoScript, Scene, load_script
    from arena.settings import Settings
    from screens.demo import DemoScreen

    recorded = next(scene for scene in load_script().scene if scene.recorded)
    async with opened(Settings()) as (app, pilot):
        scene = Scene(recorded=recorded.recorded, pace=20.0)
        stage = DemoScreen(app, DemoScript([scene], 0.0, 600.0))
        app.push_screen(stage)
        await until(pilot, lambda: stage.performance.stage.slide == "verdict")
        await draw(app, pilot, "demo")


async def demo_gpu() -> None:
    """The verdict of a duel on this machine. The demo's live duels are played for ten minutes, and their results printed."""
    from arena.demo import DemoScript, load_script
    from arena.settings import Settings
    from screens.demo import DemoScreen
    from screens.demo.words import winner

    live = [scene for scene in load_script().scene if scene.problem is not None]
    async with opened(Settings()) as (app, pilot):
        screen = DemoScreen(app, DemoScript(live), loop=True)
        app.push_screen(screen)
        performance = screen.performance
        started = monotonic()
        while monotonic() - started < DEMO_S:
            played = performance.played
            await until(pilot, lambda: performance.stage.slide in ("verdict", "trouble"))
            stage = performance.stage
            if stage.state is None or stage.state.ended is None:
                raise SystemExit(stage.trouble)
            if not played:
                await draw(app, pilot, "demo-gpu")
            words = f"{winner(stage.state)[0]}, {stage.state.ended.reason}"
            print(f"{monotonic() - started:.0f} s: {stage.problem}: {words}", flush=True)
            await until(pilot, lambda before=played: performance.played > before)


PICTURES = {
    "arena": arena,
    "duel": duel,
    "model": model,
    "improve": improve,
    "profile": profile,
    "demo": demo,
    "board": board,
    "folder": folder,
    "void": void,
    "pages": pages,
    "ncu": ncu,
    "duel-gpu": lambda: duel("duel-gpu", HERE / "duel-gpu.jsonl", before_end=True),
    "demo-gpu": demo_gpu,
    "arena-gpu": lambda: arena("arena-gpu", HERE / "run-gpu.jsonl"),
    "arena-run": arena_run,
}

if __name__ == "__main__":
    for picture in sys.argv[1:] or [name for name in PICTURES if name not in ("demo-gpu", "arena-run")]:
        asyncio.run(PICTURES[picture]())
