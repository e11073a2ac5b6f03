"""A spectator's app: `python -m screens.web.spectator`. It follows the journals of this machine's arena, read-only.

Its services use a temporary folder and its engine has no referee, so no key can run a kernel.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from arena.cli import exit_code_of
from arena.duel.events import AnyDuelEvent, DuelHeader, decode_duel_event
from arena.duel.events import decode_header as decode_duel_header
from arena.duel.journal import SILENT_S, ending
from arena.duel.state import DuelState
from arena.errors import ArenaError
from arena.paths import Paths, find_paths
from arena.records.header import RunHeader, decode_event, decode_header
from arena.records.json_lines import Follower, newest_journal
from arena.settings import load_settings
from problems.catalogue import UnknownProblem
from sandbox.machine.locked_folder import SPECTATOR, LockedFolder, remove_all_leftovers
from screens.actions import Scope, action_named, bindings
from screens.app import ArenaApp
from screens.base import BaseScreen
from screens.duel import DuelScreen
from screens.kernel.source.source_pane import KERNEL
from screens.record import RecordedKernelScreen, watching_services
from screens.services import Services
from screens.widgets.key_line import KeyLine
from screens.widgets.source_bars import close_bar
from screens.widgets.text_lines import PlainStatic

FOLLOW_S = 0.2
LOOKING = {
    *("next_view", "find", "find_text", "go_to_line", "wrap", "jump", "zoom", "next_pane"),
    *("cancel", "help", "next_theme", "quit"),
}
"""The actions of the action table that a spectator may use."""
NOTHING_YET = "No runs yet. Runs and duels of the owner appear here."


class WaitingScreen(BaseScreen):
    """The screen before the first run."""

    DEFAULT_CSS = (
        "WaitingScreen { align: center middle; } WaitingScreen #nothing { width: auto; max-width: 80%; color: $muted; }"
    )

    def compose(self) -> ComposeResult:
        yield PlainStatic(NOTHING_YET, id="nothing")
        yield KeyLine()


class _OnlyLooking:
    """A screen or an app whose actions a spectator may use only to look."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Allows some actions of the table, and all of widgets (cursor, scrolling, focus), which are not in it."""
        return action in LOOKING or action_named(action) is None


class WatchedKernelScreen(_OnlyLooking, RecordedKernelScreen):
    """The kernel screen of a run that somebody else started."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("kernel")]

    def on_mount(self) -> None:
        self.editor.read_only = True

    def source_of(self, header: RunHeader) -> str:
        """Returns the source of a run's kernel, or the baseline's if the baseline was run."""
        return header.source or self.problem.baseline_source

    def show_source(self, header: RunHeader) -> None:
        self._recorded = header
        self.editor.show_saved(self.source_of(header))

    async def _run(self, *, save: bool, on_disk: bool = False, leaves: bool = False) -> None:
        """Does nothing: a spectator cannot run kernels."""

    def action_cancel(self) -> None:
        if self.zoomed:
            self.zoom_focused()
        elif not close_bar(self):
            self.show_view(KERNEL)

    def _note(self) -> str:
        return "spectator · read-only"


class WatchedDuelScreen(_OnlyLooking, DuelScreen):
    """The screen of a duel that others play."""

    SCOPE: ClassVar[Scope] = "everywhere"

    def __init__(self, app: ArenaApp, header: DuelHeader) -> None:
        super().__init__(app, DuelState(header))

    @property
    def now(self) -> float:
        """Seconds since the duel's start. Advances between two events while it is played, also for late spectators."""
        if self.state.stage not in ("playing", "final"):
            return self.state.at
        return max(self.state.at, time.time() - self.state.header.created)

    def take(self, event: AnyDuelEvent) -> None:
        """Applies an event to the state, and causes a new drawing."""
        self.state.apply(event)
        self.hear(event)


class SpectatorApp(_OnlyLooking, ArenaApp):
    """Shows the duel that is being played, else the newest run."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, services: Services, watched: Paths) -> None:
        """watched: the folders of the arena that is followed."""
        super().__init__(services)
        self._watched = watched
        self._file: Follower | None = None
        self._headed = False
        self._screen: BaseScreen | None = None

    async def _open(self) -> None:
        await super()._open()
        self.push_screen(WaitingScreen(self))
        self.picker.start(self._follow(), "follow")

    async def _follow(self) -> None:
        while True:
            path = await asyncio.to_thread(self._newest_path)
            if path is not None and (self._file is None or path != self._file.path):
                self._file, self._headed = Follower(path), False
            if self._file is not None:
                for line in await asyncio.to_thread(_added, self._file):
                    await self._take(line)
            await asyncio.sleep(FOLLOW_S)

    def _newest_path(self) -> Path | None:
        """Returns the journal of a duel being played, or of an ended one if no run is newer; else the newest run's."""
        run, duel = newest_journal(self._watched.runs), newest_journal(self._watched.duels)
        if duel is None or run is None:
            return duel or run
        try:
            ended, duel_at, run_at = ending(duel), duel.stat().st_mtime, run.stat().st_mtime
        except (OSError, ValueError):
            return run
        if ended is None:
            return duel if time.time() - duel_at < SILENT_S else run
        return duel if duel_at >= run_at else run

    async def _take(self, line: bytes) -> None:
        assert self._file is not None
        if not self._headed:
            self._headed = True
            await self._begin(line, duel=self._file.path.parent == self._watched.duels)
            return
        try:
            if isinstance(self._screen, WatchedDuelScreen):
                self._screen.take(decode_duel_event(line))
            elif isinstance(self._screen, WatchedKernelScreen):
                self._screen.apply(decode_event(line))
        except ValueError:
            return  # written by a newer version, or incomplete

    async def _begin(self, line: bytes, *, duel: bool) -> None:
        """Shows another run or duel, whose journal begins with `line`."""
        try:
            header = decode_duel_header(line) if duel else decode_header(line)
            if isinstance(header, DuelHeader):
                await self._show(WatchedDuelScreen(self, header))
            else:
                await self._show_run(header)
        except (ValueError, ArenaError, UnknownProblem, OSError):
            self._screen = None  # the problem is unknown here; that of the next journal may be known

    async def _show_run(self, header: RunHeader) -> None:
        screen = self._screen
        if not isinstance(screen, WatchedKernelScreen) or screen.problem.id != header.problem_id:
            folder = self.services.paths.state
            folder.mkdir(parents=True, exist_ok=True)
            name = Path(header.kernel_name).name
            kernel = folder / (name if name.endswith(".py") else f"{name}.py")
            screen = WatchedKernelScreen(self, header, kernel)
            kernel.write_text(screen.source_of(header), encoding="utf-8")  # the screen opens it after `show_source`
            await self._show(screen)
        screen.show_source(header)

    async def _show(self, screen: BaseScreen) -> None:
        while self.screen is not self.picker:
            await self.pop_screen()
        self._screen = screen
        await self.push_screen(screen)


def _added(file: Follower) -> list[bytes]:
    """Returns the lines that were added since the last call; none if the file is gone. Blocks for milliseconds."""
    try:
        return [line.data for line in file.more()]
    except OSError:
        return []


def main() -> int:
    """Runs the app until it is left. Returns the exit code."""

    def watch() -> int:
        watched = find_paths()
        remove_all_leftovers()
        with LockedFolder(SPECTATOR) as folder:
            return SpectatorApp(watching_services(folder.path, load_settings(watched)), watched).run_to_end()

    return exit_code_of(watch)


if __name__ == "__main__":
    sys.exit(main())
