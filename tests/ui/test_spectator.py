"""The app of a spectator: what it shows of another arena's journals."""

import time
from contextlib import asynccontextmanager

import pytest
from stored_runs import header as run_header

from arena.duel.events import AnyDuelEvent, DuelHeader, DuelPlayer, Paused, Submitted
from arena.records.header import RunHeader
from arena.setting_choice import Choice, choose_setting
from sandbox.protocol.events import Cancelled, RunStarted, encode
from screens.record import watching_services
from screens.web.spectator import SpectatorApp, WatchedDuelScreen, WatchedKernelScreen

pytestmark = pytest.mark.slow


@pytest.fixture
def watch(services, paths, tmp_path, until):
    """watch(header, event): the app of a spectator who joins when a journal has these two lines."""

    @asynccontextmanager
    async def opened(header, event):
        folder, name = (paths.runs, header.run_id) if isinstance(header, RunHeader) else (paths.duels, header.duel_id)
        folder.mkdir(parents=True)
        (folder / f"{name}.jsonl").write_bytes(b"\n".join([encode(header), encode(event), b""]))
        own = watching_services(tmp_path / "spectator", services.settings)
        app = SpectatorApp(own, paths)
        try:
            async with app.run_test(size=(160, 40)) as pilot:
                await until(pilot, lambda: app._screen is not None and app.screen is app._screen)
                yield app, pilot
        finally:
            await own.close()

    return opened


@pytest.fixture
def problem(services):
    return services.read_catalogue().find("1")


async def test_the_baseline_is_shown_where_that_is_run(watch, until, services, problem, screen_text) -> None:
    setting = choose_setting(problem, Choice(), services.settings)
    header = run_header(
        "20260101-000000-aa", slug=problem.slug, category=problem.category, kernel_name="baseline", setting=setting
    )
    started = RunStarted(run_id=header.run_id, setting=setting, kernel_name="baseline", sha256="")
    async with watch(header, started) as (app, pilot):
        assert isinstance(app.screen, WatchedKernelScreen)
        await until(pilot, lambda: any(worker.group == "watch" for worker in app.screen.workers))  # the file was read
        assert app.screen.editor.text == problem.baseline_source
        run_id = header.run_id
        app.screen.apply(Cancelled(run_id=run_id, phase="time"))
        await until(pilot, lambda: "CANCELLED" in screen_text(app))
        assert not {"F5", "F8:"} & {*screen_text(app).split()}  # keys that do nothing here


@pytest.mark.parametrize(
    ("event", "left_s"),
    [(Submitted(at=2.0, side="left", attempt=1, sha256="", source=""), 300.0), (Paused(at=60.0), 540.0)],
)
async def test_who_comes_late_sees_clock_as_it_is(
    watch, until, services, problem, event: AnyDuelEvent, left_s: float
) -> None:
    header = DuelHeader(
        duel_id="20260101-000000-aa", created=time.time() - 300.0, problem_id=1, slug=problem.slug, title="",
        category=problem.category, left=DuelPlayer("file", "you"), right=DuelPlayer("file", "guest"),
        setting=choose_setting(problem, Choice(), services.settings), minutes=10.0,
    )  # fmt: skip
    async with watch(header, event) as (app, pilot):
        screen = app.screen
        assert isinstance(screen, WatchedDuelScreen)
        await until(pilot, lambda: screen.state.at == event.at)
        assert left_s - 200.0 < screen.state.remaining(screen.now) <= left_s
