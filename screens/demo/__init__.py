"""The app with a demo in front, until a key is pressed."""

import asyncio
import time
from contextlib import suppress

from textual import events, on

from arena.demo import DemoScript, OpenJudge, Performance
from arena.paths import find_paths
from arena.runs.engine import temporary_engine
from screens.app import ArenaApp
from screens.demo.screen import DemoScreen
from screens.services import Services

IDLE_S = 180.0
"""With --loop: seconds without input after which the demo plays again, if the list of problems is shown."""
IDLE_CHECK_S = 2.0


class DemoApp(ArenaApp):
    """Plays a script. Without `loop` the app ends after the last scene, unless a user took over."""

    def __init__(
        self, services: Services, script: DemoScript, *, loop: bool = False, judge: OpenJudge = temporary_engine
    ) -> None:
        """judge: as in `Performance`."""
        services.first_start = False  # no welcome dialog during a demo
        super().__init__(services)
        self._script = script
        self._looping = loop
        self._judge = judge
        self._touched = time.monotonic()
        self._demo: DemoScreen | None = None
        self._playing: asyncio.Task[None] | None = None

    async def _open(self) -> None:
        await super()._open()
        self.play()
        if self._looping:
            self.set_interval(IDLE_CHECK_S, self._come_back)

    def play(self) -> None:
        """Plays the script from its first scene."""
        catalogue = self.services.catalogue
        assert catalogue is not None
        services = self.services
        performance = Performance(
            self._script, catalogue, services.settings, services.paths, loop=self._looping, judge=self._judge
        )
        self._demo = DemoScreen(self, performance)
        self.push_screen(self._demo)
        self._playing = asyncio.create_task(self._play(performance))

    async def _play(self, performance: Performance) -> None:
        try:
            await performance.play()
        except Exception as error:
            self.record_fault(error)
            self.notify(f"the demo stopped: {type(error).__name__}: {error}", severity="error", markup=False)
            self._leave_stage()
        else:
            self.exit()

    def _leave_stage(self) -> None:
        if self._demo is not None and self._demo.is_current:
            self.pop_screen()
        self._demo = None

    async def stop(self) -> None:
        """Ends the current scene and all its processes. May be called twice."""
        playing, self._playing = self._playing, None
        if playing is not None:
            playing.cancel()
            with suppress(asyncio.CancelledError):
                await playing

    async def end(self) -> None:
        await self.stop()
        await super().end()

    @on(DemoScreen.TakenOver)
    async def _taken_over(self) -> None:
        self._leave_stage()
        await self.stop()

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, (events.Key, events.MouseDown, events.Paste)):
            self._touched = time.monotonic()
        await super().on_event(event)

    def _come_back(self) -> None:
        """Plays again when idle, but only from the list of problems: any other open screen stays open."""
        idle = time.monotonic() - self._touched
        if self._playing is None and idle > IDLE_S and self.screen is self.picker:
            self.play()


def run_demo(script: DemoScript, loop: bool) -> int:
    """Plays a demo until it is over or left. Returns the exit code.

    Raises:
        ArenaError: the settings or the workspace cannot be used; nothing was drawn.
    """
    return DemoApp(Services(find_paths()), script, loop=loop).run_to_end()
