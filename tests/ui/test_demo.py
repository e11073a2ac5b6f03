"""Demo mode: scenes follow one another, a failed one is reported, any key takes over, no process is left."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from arena import demo
from arena.demo import DemoScript, Scene, load_script
from arena.paths import paths_in
from arena.runs.engine import Engine
from sandbox.protocol.events import Interval
from sandbox.protocol.verdict import Verdict
from screens import demo_app
from screens.demo import DemoScreen
from screens.demo.big_type import big_type
from screens.demo.words import capitals, figure
from screens.demo_app import DemoApp

pytestmark = pytest.mark.slow

REFEREE = (sys.executable, "-P", str(Path(__file__).parent.parent / "unit" / "scripted_referee.py"))
RECORDED = load_script().scene[1].recorded


@asynccontextmanager
async def scripted_engine() -> AsyncIterator[Engine]:
    """An engine with the scripted referee, which does what kernels say."""
    with tempfile.TemporaryDirectory() as folder:
        async with Engine(paths_in(Path(folder)), command=REFEREE) as engine:
            yield engine


def started_processes() -> set[psutil.Process]:
    """The direct children of this process. Below them worlds may start and end, which other tests keep warm."""
    return set(psutil.Process().children())


@pytest.fixture
def play(services, until):
    """play(scenes, loop=...): the app with a demo of these scenes. At its end no new process may be left."""

    @asynccontextmanager
    async def opened(scenes: list[Scene], loop: bool = False, pause: float = 0.6, intro: float = 0.3):
        app = DemoApp(services, DemoScript(scenes, intro, pause), loop=loop, judge=scripted_engine)
        before = started_processes()
        try:
            async with app.run_test(size=(100, 30)) as pilot:
                await until(pilot, lambda: isinstance(app.screen, DemoScreen))
                yield app, pilot
        finally:
            await services.close()
        assert app.faults == []
        assert started_processes() <= before

    return opened


def kernel(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


async def test_scenes_play_to_end_and_app_leaves(play, until, tmp_path, services) -> None:
    live = Scene(problem=13, left=kernel(tmp_path, "a.py", "pass"), right=kernel(tmp_path, "b.py", "pass"))
    seen: set[tuple[str, bool]] = set()
    async with play([live, Scene(recorded=RECORDED, pace=20.0), Scene(board=True)], intro=0.0) as (app, pilot):
        stage_of = app.screen.performance

        def over() -> bool:
            seen.add((stage_of.stage.slide, bool(stage_of.stage.recorded)))
            return stage_of.played == 3

        await until(pilot, over)
        await until(pilot, lambda: app._exit)
    assert {("race", False), ("verdict", False), ("race", True), ("verdict", True), ("board", False)} <= seen
    assert not list(services.paths.duels.glob("*"))  # a live duel of a demo is not stored
    assert not list(services.paths.runs.glob("*"))


async def test_unplayable_scene_is_told_and_next_one_plays(play, until, screen_text, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(demo, "TROUBLE_S", 2.0)
    scenes = [Scene(problem=999), Scene(problem=13, left=str(tmp_path / "none.py")), Scene(board=True)]
    async with play(scenes, pause=5.0) as (app, pilot):
        stage_of = app.screen.performance
        await until(pilot, lambda: "no problem '999'" in screen_text(app))
        await until(pilot, lambda: stage_of.stage.number == 2 and "none.py" in stage_of.stage.trouble)
        await until(pilot, lambda: stage_of.stage.slide == "board")


@pytest.mark.parametrize("key", ["a", *(pytest.param(key, marks=pytest.mark.further) for key in ("escape", "f1"))])
async def test_any_key_takes_over_and_ends_the_scene(play, until, go_to, tmp_path, key) -> None:
    live = Scene(problem=13, left=kernel(tmp_path, "a.py", "wait"), right=kernel(tmp_path, "b.py", "pass"))
    before = started_processes()
    async with play([live], loop=True) as (app, pilot):
        await until(pilot, lambda: app.screen.performance.stage.slide == "race")
        await until(pilot, lambda: started_processes() - before)
        await go_to(pilot, app.picker, key)
        await until(pilot, lambda: not started_processes() - before)


async def test_loop_comes_back_when_nobody_is_there(play, until, go_to, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(demo_app, "IDLE_CHECK_S", 0.1)
    async with play([Scene(board=True)], loop=True, pause=0.2) as (app, pilot):
        await until(pilot, lambda: app.screen.performance.played > 2)  # it loops
        await go_to(pilot, app.picker, "x")
        monkeypatch.setattr(demo_app, "IDLE_S", 0.3)
        await until(pilot, lambda: isinstance(app.screen, DemoScreen))
        monkeypatch.setattr(demo_app, "IDLE_S", 600.0)
        await go_to(pilot, app.picker, "x")
        app.open_problem(app.services.catalogue.find("13"))
        await until(pilot, lambda: app.screen is not app.picker)
        monkeypatch.setattr(demo_app, "IDLE_S", 0.3)
        await asyncio.sleep(1.0)
        assert not isinstance(app.screen, DemoScreen)  # a kernel is open, so the demo does not return


async def test_a_recorded_duel_counts_once_in_all_rounds(play, until, monkeypatch) -> None:
    monkeypatch.setattr(demo, "LONGEST_GAP_S", 0.0)
    async with play([Scene(recorded=RECORDED), Scene(board=True)], loop=True, pause=0.1, intro=0.0) as (app, pilot):
        shown = app.screen.performance
        await until(pilot, lambda: shown.played >= 3 and shown.stage.slide == "board")
        assert {rating.duels for rating in shown.stage.ratings} == {1}


@pytest.mark.parametrize(("said", "shown"), [("faster", "▲ 1.50×"), ("even", "SAME SPEED"), ("too noisy", "TOO NOISY")])
def test_a_figure_needs_an_interval_beside_1(said: str, shown: str) -> None:
    judged = SimpleNamespace(verdict=Verdict.PASS, outcome=said)
    assert figure(SimpleNamespace(judged=judged, speedup=Interval(1.5, 0.9, 2.5)))[0] == shown


def test_players_of_one_name_are_told_apart() -> None:
    players = ["agent:stand-in", "model:stand-in", "model:opus"]
    assert [capitals(each, players) for each in players] == ["AGENT:STAND-IN", "MODEL:STAND-IN", "OPUS"]


def test_type_fills_its_place_and_breaks_at_words() -> None:
    assert len(big_type("HOUSE", 160, 8)) == 7
    assert len(big_type("HOUSE", 50, 8)) == 4
    assert len(big_type("EVERY RANK", 40, 9)) == 9  # two lines and a gap
    assert big_type("HOUSE", 10, 4) == ["HOUSE"]
    assert all(len(row) <= 96 for row in big_type("Every rank has a tensor and needs the sum.", 96, 20))
