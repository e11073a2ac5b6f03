"""Chooses the problem and the setting of a run from the given options, the settings file and this machine."""

from collections.abc import Mapping

import msgspec

from arena.errors import MachineError, UsageError
from arena.machine.facts import choose_device, visible_gpus
from arena.settings import Settings
from problems.catalogue import Catalogue, UnknownProblem
from problems.specification import Problem, SizeError, WorldRefused
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Setting

CPU_WORLD = 2
"""Default number of CPU ranks: the smallest world with communication."""


class Choice(msgspec.Struct, frozen=True):
    """The given options. Empty or None: taken from the settings, then from the problem and the machine."""

    preset: str | None = None
    world: int | None = None
    device: str | None = None
    dtype: str | None = None
    sizes: dict[str, int] = {}

    def over(self, default: "Choice") -> "Choice":
        """Returns these options, and the default's where one is empty. Sizes of both are joined."""
        names = Choice.__struct_fields__
        given = {name: getattr(default if getattr(self, name) in (None, "") else self, name) for name in names}
        return Choice(**given | {"sizes": default.sizes | self.sizes})


def choice_of(setting: Setting, problem: Problem) -> Choice:
    """Returns the options that reproduce this setting."""
    usual = problem.presets.get(setting.preset, {})
    sizes = {name: size for name, size in setting.sizes.items() if usual.get(name) != size}
    return Choice(setting.preset, setting.world, setting.device, setting.dtype, sizes)


def sizes_words(words: str, sizes: Mapping[str, int]) -> str:
    """Returns words, such as a preset, with sizes behind them: "tiny M=7 N=3"."""
    return " ".join([words, *(f"{name}={size}" for name, size in sizes.items())])


def find_problem(catalogue: Catalogue, name: str) -> Problem:
    """Returns the problem with this id, slug or stem.

    Raises:
        UsageError: there is none; the advice names similar ones, if any.
    """
    try:
        return catalogue.find(name)
    except UnknownProblem as error:
        message, _, near = str(error).partition(": ")
        raise UsageError(message, near or "`pkb-arena list` shows all problems") from None


def choose_setting(problem: Problem, choice: Choice, settings: Settings) -> Setting:
    """Returns the setting to run in. Starts nothing.

    The options of this run must fit the problem. A value of the settings file that does not fit is ignored.

    Raises:
        UsageError: a preset, size, dtype or world that the problem does not have.
        MachineError: the device is missing, or there are too few GPUs.
    """
    device = choose_device(choice.device or settings.device)
    preset = choice.preset or settings.preset or kind_of(device).default_preset
    try:
        sizes = problem.sizes(preset, dict(choice.sizes))
    except SizeError as error:
        raise UsageError(str(error), f"`pkb-arena show {problem.id}` lists presets and sizes") from None
    return Setting(
        problem_dir=str(problem.folder.resolve()),
        preset=preset,
        sizes=sizes,
        world=_world(problem, choice, settings, device),
        device=device,
        dtype=_dtype(problem, choice, settings),
    )


def _dtype(problem: Problem, choice: Choice, settings: Settings) -> str:
    if choice.dtype and choice.dtype not in problem.dtypes:
        raise UsageError(f"{problem.slug} has no dtype {choice.dtype!r}", f"choose from {', '.join(problem.dtypes)}")
    if choice.dtype:
        return choice.dtype
    return settings.dtype if settings.dtype in problem.dtypes else problem.dtypes[0]


def _world(problem: Problem, choice: Choice, settings: Settings, device: str) -> int:
    gpus = visible_gpus() if kind_of(device).on_gpus else None
    if choice.world is not None:
        check_world(problem, choice.world)
        world = choice.world
    elif settings.world in problem.worlds:
        world = settings.world
    elif gpus is not None:
        world = max((world for world in problem.worlds if world <= gpus), default=min(problem.worlds))
    else:
        world = min(problem.worlds, key=lambda world: (world < CPU_WORLD, world))
    if gpus is not None and world > gpus:
        raise MachineError(
            f"a world of {world} ranks needs {world} GPUs, and {gpus} are visible",
            f"use --world {gpus} or less, or --device cpu",
        )
    return world


def check_world(problem: Problem, world: int) -> None:
    """Raises a UsageError if a problem does not allow a world size."""
    try:
        problem.check_world(world)
    except WorldRefused as error:
        raise UsageError(str(error), f"choose --world from {', '.join(map(str, problem.worlds))}") from None
