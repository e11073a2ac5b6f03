"""Plays a journal on the app's own screens without a terminal, and writes what stands there to a file."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from textual.pilot import Pilot

from arena.duel.events import DuelHeader
from arena.duel.journal import read_duel
from arena.errors import UsageError
from arena.paths import paths_in, write_named_file
from arena.records.header import RunHeader, read_events
from arena.records.run_record import fields_of
from arena.settings import Settings
from problems.catalogue import UnknownProblem
from sandbox.protocol.events import AnyEvent, RunStarted, Setting
from screens.app import ArenaApp
from screens.duel.replay import ReplayDuelScreen
from screens.kernel.gpu_strip import GpuStrip
from screens.kernel.screen import KernelScreen
from screens.kernel.source.source_pane import SourcePane
from screens.record.recording import Recording, animated_svg, asciicast
from screens.services import Services
from screens.themes import DEFAULT, FOLDER, load_themes

STEP_S = 0.2
"""Between two pictures."""
LONGEST_GAP_S = 2.0
"""Nothing happens for longer than this in no recording; what took longer is told in the phases' own seconds."""
LAST_S = 4.0
"""The end stands for so long."""
NO_REFEREE = ("/bin/false",)


class RecordedKernelScreen(KernelScreen):
    """The kernel screen fed by a journal: no engine, and the setting of then."""

    ONLY_SHOWS = True

    def __init__(self, app: ArenaApp, header: RunHeader, path: Path) -> None:
        assert app.services.catalogue is not None
        try:
            problem = app.services.catalogue.find(str(header.problem_id))
        except UnknownProblem as error:
            raise UsageError(str(error), "name the folder of your problems in problem_dirs") from None
        super().__init__(app, problem, path)
        self._recorded = header

    def apply(self, event: AnyEvent) -> None:
        self.session.apply(event)
        self._mark(event)

    def show_moment(self, at: float) -> None:
        """The present on the clock of the events."""
        self.session.set_clock(at)
        self.draw(force=True)

    def _setting(self) -> Setting:
        return self._recorded.setting

    def _draw_lines(self) -> None:
        super()._draw_lines()
        self.query_one(GpuStrip).follow(0)  # the GPUs of this machine are not those of the run
        self.query_one(SourcePane).border_subtitle = ""  # nor is the file where this is drawn


def watching_services(folder: Path, settings: Settings) -> Services:
    """Returns services for a temporary folder, with the settings that decide what the app looks like."""
    services = Services(paths_in(folder), NO_REFEREE)
    services.warms = False
    services.settings = Settings(**fields_of(settings, "problem_dirs theme keymap"), device="cpu")
    services.first_start = False
    return services


@asynccontextmanager
async def _opened(
    settings: Settings, size: tuple[int, int], theme: str
) -> AsyncIterator[tuple[ArenaApp, Pilot[Any], Path]]:
    """The app over a folder of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="pkb-record-") as folder:
        services = watching_services(Path(folder), replace(settings, theme=theme, keymap={}))
        app = ArenaApp(services)
        if theme not in app.available_themes:
            raise UsageError(f"there is no theme {theme!r}", f"choose from {', '.join(app.theme_names)}")
        try:
            async with app.run_test(size=size, notifications=False) as pilot:
                await app.opened.wait()
                await pilot.pause()
                yield app, pilot, Path(folder)
        finally:
            await services.close()


async def record_duel(
    path: Path, header: DuelHeader, settings: Settings, size: tuple[int, int], theme: str, speed: float
) -> Recording:
    """A duel's journal as its replay shows it."""
    left, right = header.left.name, header.right.name
    recording = Recording(*size, f"pkb-arena · {header.problem_id} {header.slug} · {left} vs {right}")
    moments = [event.at for event in read_duel(path)]
    async with _opened(settings, size, theme) as (app, pilot, _):
        screen = ReplayDuelScreen(app, path, header, pace=1)
        app.push_screen(screen)
        await pilot.pause()
        screen.action_replay_pause()
        for at, moment in told(moments, speed):
            screen.play_to(moment)
            screen.draw()
            await _picture(app, pilot, recording, at)
    return recording


async def record_run(
    path: Path, header: RunHeader, settings: Settings, size: tuple[int, int], theme: str, speed: float
) -> Recording:
    """A run's journal on the kernel screen."""
    recording = Recording(*size, f"pkb-arena · {header.problem_id} {header.slug} · {header.kernel_name}")
    events = _timed(list(read_events(path)))
    async with _opened(settings, size, theme) as (app, pilot, folder):
        name = Path(header.kernel_name).name
        kernel = folder / (name if name.endswith(".py") else f"{name}.py")
        kernel.write_text(header.source, encoding="utf-8")
        screen = RecordedKernelScreen(app, header, kernel)
        app.push_screen(screen)
        await pilot.pause()
        waiting = time.monotonic() + 5.0
        while screen.editor.text != header.source and time.monotonic() < waiting:
            await pilot.pause(0.02)
        done = 0
        for at, moment in told([at for at, _ in events], speed):
            while done < len(events) and events[done][0] <= moment:
                screen.apply(events[done][1])
                done += 1
            screen.show_moment(moment)
            await _picture(app, pilot, recording, at)
    return recording


def told(moments: list[float], speed: float) -> list[tuple[float, float]]:
    """(second of the recording, moment of what happened) for every picture: pauses are shortened, all is sped up."""
    pictures = [(0.0, moments[0] if moments else 0.0)]
    at = 0.0
    for before, moment in pairwise(moments):
        gap = (moment - before) / speed
        shown = min(gap, LONGEST_GAP_S)
        steps = max(1, int(shown / STEP_S))
        for step in range(1, steps + 1):
            share = step / steps
            at_step = at + shown * share
            if at_step - pictures[-1][0] >= STEP_S:
                pictures.append((at_step, before + (moment - before) * share))
        at += shown
    if moments and pictures[-1][1] < moments[-1]:
        pictures.append((max(at, pictures[-1][0]), moments[-1]))
    return pictures


def _timed(events: list[AnyEvent]) -> list[tuple[float, AnyEvent]]:
    """Every event with its moment; one without a time of its own happened with the one before it."""
    first = next((event.at for event in events if isinstance(event, RunStarted) and event.at), 0.0)
    moment, timed = first, []
    for event in events:
        moment = max(moment, event.at)
        timed.append((moment, event))
    return timed


async def _picture(app: ArenaApp, pilot: Pilot[Any], recording: Recording, at: float) -> None:
    await pilot.pause()
    # What a widget shows may change the layout, which is worked out once the widget is drawn.
    for _ in range(2):
        drawn = asyncio.Event()
        app.screen.call_after_refresh(drawn.set)
        await drawn.wait()
    recording.add(at, app.screen._compositor.render_strips())


def record(
    journal: Path,
    header: RunHeader | DuelHeader,
    target: Path,
    size: tuple[int, int],
    speed: float,
    theme: str,
    settings: Settings,
) -> float:
    """Plays a journal and writes it to a file, .cast or .svg. Returns the recording's length in seconds.

    size: columns and lines. theme: empty for that of the settings.

    Raises:
        UsageError: there is no such theme.
        FolderUnwritable: the file cannot be written.
    """
    theme = theme or settings.theme or DEFAULT
    if isinstance(header, DuelHeader):
        work = record_duel(journal, header, settings, size, theme, speed)
    else:
        work = record_run(journal, header, settings, size, theme, speed)
    recording = asyncio.run(work)
    recording.length += LAST_S
    if target.suffix.lower() == ".cast":
        text = "\n".join(asciicast(recording, header.created)) + "\n"
    else:
        found = next((each for each in load_themes((FOLDER,))[0] if each.name == theme), None)
        foreground = (found.foreground if found else None) or "#c8d0d8"
        background = (found.background if found else None) or "#0f1318"
        text = animated_svg(recording, foreground, background)
    write_named_file(target, text)
    return recording.length
