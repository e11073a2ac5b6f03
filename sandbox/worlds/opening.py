"""What opens a problem in a world: the order, the times of the problem's files, and the folders to read."""

from pathlib import Path

from sandbox.jail.profiles import SOURCE_ROOT
from sandbox.protocol.events import Setting
from sandbox.protocol.messages import OpenProblem
from sandbox.worlds.world import Stamps, World


def readable(setting: Setting) -> tuple[Path, ...]:
    """The folder of a user's own problem; empty for a problem of the benchmark, which every world can read."""
    folder = Path(setting.problem_dir).resolve()
    return () if folder.is_relative_to(SOURCE_ROOT / "problems") else (folder,)


def opening(setting: Setting) -> OpenProblem:
    """The order that opens a setting."""
    return OpenProblem(folder=setting.problem_dir, sizes=setting.sizes, preset=setting.preset, dtype=setting.dtype)


def stamps_of(setting: Setting) -> Stamps:
    """Times of the last changes of the problem's files."""
    folder = Path(setting.problem_dir)
    return tuple((folder / name).stat().st_mtime_ns for name in ("inputs.py", "baseline.py", "problem.toml"))


def has_open(world: World, setting: Setting) -> bool:
    """Whether a world has this setting open, with the problem's files as they are now."""
    return world.has_open(opening(setting), stamps_of(setting))
