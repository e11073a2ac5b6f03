"""Scripts of demos: TOML files with scenes."""

import tomllib
from pathlib import Path

import msgspec

from arena.errors import UsageError, why
from problems.toml_fields import misfit

DEFAULT = Path(__file__).with_name("default.toml")
PACES = (1.0, 20.0)
LONGEST_S = 3600.0
_ADVICE = "`pkb-arena demo --print-script` shows what a script says"


class Scene(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A live duel, a recorded duel, or the board. Seconds that are None default to those of the script."""

    problem: int | str | None = None
    left: str = "house"
    right: str = "baseline"
    recorded: str = ""
    """Path of a duel's journal, relative to the script's folder."""
    pace: float = 3.0
    """Replay speed of a recorded duel."""
    board: bool = False
    say: str = ""
    """The problem in one sentence; empty: the first sentence of its card."""
    intro: float | None = None
    """Seconds for which the problem is shown."""
    pause: float | None = None
    """Seconds for which the result is shown."""


class DemoScript(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A whole demo."""

    scene: list[Scene]
    intro: float = 6.0
    pause: float = 8.0


def script_text(path: Path = DEFAULT) -> str:
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
    for name in ("intro", "pause"):
        _check_seconds(name, getattr(script, name), str(path))
    return msgspec.structs.replace(script, scene=scenes)


def _checked(scene: Scene, number: int, path: Path) -> Scene:
    where = f"{path}: scene {number}"
    kinds = [scene.problem is not None, bool(scene.recorded), scene.board]
    if sum(kinds) != 1:
        raise UsageError(f"{where} has to be one thing", "give it one of problem, recorded and board")
    if not PACES[0] <= scene.pace <= PACES[1]:
        raise UsageError(f"{where}: pace is {scene.pace:g}", f"from {PACES[0]:g} to {PACES[1]:g} times as fast")
    for name in ("intro", "pause"):
        _check_seconds(name, getattr(scene, name), where)
    if not scene.recorded:
        return scene
    journal = path.parent / Path(scene.recorded).expanduser()
    if not journal.is_file():
        raise UsageError(f"{where}: there is no file {journal}", "name the journal of a duel")
    return msgspec.structs.replace(scene, recorded=str(journal.absolute()))


def _check_seconds(name: str, value: float | None, where: str) -> None:
    if value is not None and not 0.0 <= value <= LONGEST_S:
        raise UsageError(f"{where}: {name} is {value:g} seconds", f"from 0 to {LONGEST_S:g}")
