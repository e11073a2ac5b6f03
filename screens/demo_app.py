"""The app with a demo in front, until a key is pressed."""

import time

from textual import events

from arena.demo import DemoScript, OpenJudge
from arena.paths import find_paths
from arena.runs.engine import temporary_engine
from screens.app import ArenaApp
from screens.demo import DemoScreen
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

    async def _open(self) -> None:
        await super()._open()
        self.play()
        if self._looping:
            self.set_interval(IDLE_CHECK_S, self._come_back)

    def play(self) -> None:
        """Plays the script from its first scene."""
        self.push_screen(DemoScreen(self, self._script, self.exit, loop=self._looping, judge=self._judge))

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, (events.Key, events.MouseDown, events.Paste)):
            self._touched = time.monotonic()
        await super().on_event(event)

    def _come_back(self) -> None:
        """Plays again when idle, but only from the list of problems: any other open screen stays open."""
        if time.monotonic() - self._touched > IDLE_S and self.screen is self.picker:
            self.play()


def run_demo(script: DemoScript, loop: bool) -> int:
    """Plays a demo until it is over or left. Returns the exit code.

    Raises:
        ArenaError: the settings or the workspace cannot be used; nothing was drawn.
    """
    return DemoApp(Services(find_paths()), script, loop=loop).run_to_end()
