"""Demo mode without its screen: scripts in TOML, and their scenes of live and recorded duels one after another."""

import asyncio
import re
import tempfile
import time
import tomllib
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from arena.duel.events import DuelHeader
from arena.duel.journal import ALL, DuelRecord, Rating, ratings, read_duel, read_duel_header, read_duels
from arena.duel.match import Match, Players, duel_players, new_header
from arena.duel.state import DuelState
from arena.errors import ArenaError, UsageError, why
from arena.paths import Paths, paths_in
from arena.players.player import PlayerSetup, Task
from arena.records.voids import read_voids
from arena.runs.engine import Engine, temporary_engine
from arena.setting_choice import Choice, choose_setting, find_problem
from arena.settings import Settings
from problems.catalogue import Catalogue
from problems.specification import Problem
from problems.toml_fields import misfit

DEFAULT = Path(__file__).with_name("default.toml")
Seconds = Annotated[float, Meta(ge=0.0, le=3600.0)]
_ADVICE = "`pkb-arena demo --print-script` shows what a script says"


class Scene(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A live duel, a recorded duel, or the board. Seconds that are None default to those of the script."""

    problem: int | str | None = None
    left: str = "house"
    right: str = "baseline"
    recorded: str = ""
    """Path of a duel's journal, relative to the script's folder."""
    pace: Annotated[float, Meta(ge=1.0, le=20.0)] = 3.0
    """Replay speed of a recorded duel."""
    board: bool = False
    say: str = ""
    """The problem in one sentence; empty: the first sentence of its card."""
    intro: Seconds | None = None
    """Seconds for which the problem is shown."""
    pause: Seconds | None = None
    """Seconds for which the result is shown."""


class DemoScript(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A whole demo."""

    scene: list[Scene]
    intro: Seconds = 6.0
    pause: Seconds = 8.0


def script_text(path: Path) -> str:
    """Returns the text of a script.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {why(error)}", f"`pkb-arena demo --print-script > {path}` writes one to start from"
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: {why(error)}", _ADVICE) from None


def load_script(path: Path = DEFAULT) -> DemoScript:
    """Reads a script; paths of recorded duels become absolute.

    Raises:
        UsageError: it cannot be read or has an invalid value; the message names the scene.
    """
    try:
        values = tomllib.loads(script_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}", "correct that line") from None
    try:
        script = msgspec.convert(values, DemoScript)
    except msgspec.ValidationError:
        raise UsageError(f"{path}: {misfit(values, DemoScript)}", _ADVICE) from None
    if not script.scene:
        raise UsageError(f"{path} has no scene", "add a [[scene]]")
    scenes = [_checked(scene, number, path) for number, scene in enumerate(script.scene, 1)]
    return msgspec.structs.replace(script, scene=scenes)


def _checked(scene: Scene, number: int, path: Path) -> Scene:
    where = f"{path}: scene {number}"
    kinds = [scene.problem is not None, bool(scene.recorded), scene.board]
    if sum(kinds) != 1:
        raise UsageError(f"{where} has to be one thing", "give it one of problem, recorded and board")
    if not scene.recorded:
        return scene
    journal = path.parent / Path(scene.recorded).expanduser()
    if not journal.is_file():
        raise UsageError(f"{where}: there is no file {journal}", "name the journal of a duel")
    return msgspec.structs.replace(scene, recorded=str(journal.absolute()))


OpenJudge = Callable[[], AbstractAsyncContextManager[Engine]]
Slide = Literal["opening", "problem", "race", "verdict", "board", "trouble"]
TROUBLE_S = 6.0
"""Seconds for which the reason is shown if a scene cannot be played."""
LONGEST_GAP_S = 3.0
"""Longest time between two events of a recorded duel."""
KEPT_DUELS = 200
MODEL_ROUNDS = 3
"""Kernels that a model may submit."""


@dataclass
class DemoStage:
    """The current content of the screen."""

    slide: Slide = "opening"
    number: int = 0
    """Number of the scene, from 1; 0 before the first."""
    recorded: str = ""
    """Date of a recorded duel; empty for a live duel."""
    problem: str = ""
    """Id and name: "1 allreduce"."""
    sentence: str = ""
    state: DuelState | None = None
    ratings: list[Rating] = field(default_factory=list)
    trouble: str = ""
    clock: Callable[[], float] = lambda: 0.0
    """Seconds since the duel began."""


@dataclass(eq=False)
class Performance:
    """One demo. Each live duel has its own engine, whose files are deleted when the duel is over.

    So a demo does not add to the user's journals, and nothing runs between the scenes.
    """

    script: DemoScript
    catalogue: Catalogue
    settings: Settings
    paths: Paths
    """The user's folders, whose duels count on the board."""
    loop: bool = False
    """Whether it starts again after the last scene."""
    judge: OpenJudge = temporary_engine
    """Opens the engine for one live duel."""
    played: int = 0
    """Number of scenes played so far."""

    def __post_init__(self) -> None:
        self.stage = DemoStage()
        self._records: deque[DuelRecord] = deque(maxlen=KEPT_DUELS)

    async def play(self) -> None:
        """Plays every scene, repeatedly with `loop`. If a scene cannot be played, shows why and continues."""
        while True:
            for number, scene in enumerate(self.script.scene, 1):
                try:
                    await self._play_scene(number, scene)
                except (ArenaError, OSError, ValueError) as error:
                    self.stage = DemoStage("trouble", number, trouble=str(error))
                    await asyncio.sleep(TROUBLE_S)
                self.played += 1
            if not self.loop:
                return

    async def _play_scene(self, number: int, scene: Scene) -> None:
        if scene.board:
            voids = await asyncio.to_thread(read_voids, self.paths.voids)
            own, _ = await asyncio.to_thread(read_duels, self.paths.duels, voids)
            once = {each.header.duel_id: each for each in [*self._records, *own]}  # a recorded duel may be in both
            found = [each for each in ratings(once.values()) if each.category == ALL]
            self.stage = DemoStage("board", number, ratings=found)
            await asyncio.sleep(self._pause(scene))
        elif scene.recorded:
            await self._play_recorded(number, scene)
        else:
            await self._play_live(number, scene)

    # --- recorded ----------------------------------------------------------------------------------------------

    async def _play_recorded(self, number: int, scene: Scene) -> None:
        path = Path(scene.recorded)
        header = await asyncio.to_thread(read_duel_header, path)
        events = await asyncio.to_thread(lambda: list(read_duel(path)))
        state = DuelState(header)
        cards = (problem.card for problem in self.catalogue.problems if problem.id == header.problem_id)
        self.stage = DemoStage(
            "problem",
            number,
            recorded=time.strftime("%d %b %Y", time.localtime(header.created)),
            problem=f"{header.problem_id} {header.slug}",
            sentence=scene.say or next(map(first_sentence, cards), ""),
            state=state,
            clock=lambda: state.at,
        )
        await asyncio.sleep(self._intro(scene))
        self.stage.slide = "race"
        for event in events:
            await asyncio.sleep(min(max(0.0, event.at - state.at) / scene.pace, LONGEST_GAP_S))
            state.apply(event)
        await self._show_result(scene, state)

    # --- live --------------------------------------------------------------------------------------------------

    async def _play_live(self, number: int, scene: Scene) -> None:
        problem = find_problem(self.catalogue, str(scene.problem))
        setting = choose_setting(problem, Choice(), self.settings)
        setup = PlayerSetup(self.settings, self.catalogue, self.paths)
        players = duel_players((scene.left, scene.right), ("you", "guest"), Task(problem, setting), setup)
        header = new_header(problem, setting, players, rounds=MODEL_ROUNDS)
        self.stage = DemoStage(
            "problem",
            number,
            problem=f"{problem.id} {problem.slug}",
            sentence=scene.say or first_sentence(problem.card),
            state=DuelState(header),
        )
        with tempfile.TemporaryDirectory(prefix="pkb-demo-") as folder:
            match = await self._play_match(problem, header, players, paths_in(Path(folder)), scene)
        await self._show_result(scene, match.state)

    async def _play_match(
        self, problem: Problem, header: DuelHeader, players: Players, paths: Paths, scene: Scene
    ) -> Match:
        """paths: temporary folders for the duel's journal."""
        async with self.judge() as engine:
            match = Match(engine, paths, problem, header, players, budget_s=self.settings.seconds)
            self.stage.state, self.stage.clock = match.state, lambda: match.now
            playing = asyncio.create_task(match.play())
            try:
                await asyncio.wait({playing}, timeout=self._intro(scene))
                self.stage.slide = "race"
                await playing
            finally:
                playing.cancel()
                await asyncio.gather(playing, return_exceptions=True)
        self.stage.clock = lambda: match.state.at
        return match

    # --- the result --------------------------------------------------------------------------------------------

    async def _show_result(self, scene: Scene, state: DuelState) -> None:
        if state.ended is None:
            raise UsageError(f"this duel was not decided: {state.abandoned or 'its journal ends early'}", "")
        self._records.append(DuelRecord(state.header, state.ended))
        self.stage.slide = "verdict"
        await asyncio.sleep(self._pause(scene))

    def _intro(self, scene: Scene) -> float:
        return self.script.intro if scene.intro is None else scene.intro

    def _pause(self, scene: Scene) -> float:
        return self.script.pause if scene.pause is None else scene.pause


def first_sentence(card: str) -> str:
    """Returns the first sentence below a card's heading."""
    body = card.split("\n", 1)[1] if card.startswith("#") else card
    paragraph = " ".join(body.strip().split("\n\n")[0].split())
    found = re.match(r".+?[.;](?=\s|$)", paragraph)
    return (found[0][:-1] + "." if found else paragraph).strip()
