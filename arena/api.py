"""The Python interface: judges kernels from a program, as `pkb-arena run` does from the command line."""

import asyncio
import math
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, TypedDict, Unpack, get_type_hints

from msgspec import Meta

from arena.errors import UsageError
from arena.paths import Paths, find_paths, paths_in
from arena.records.run_record import RunRecord, view
from arena.runs.engine import Engine
from arena.runs.judge import Judge, Judgement, RunRequest, judge_to_end
from arena.setting_choice import Choice, choose_setting, find_problem
from arena.settings import LEAST_BUDGET_S, MOST_BUDGET_S, MOST_RANKS, MOST_ROUNDS, Settings, load_settings
from arena.words.headline import by_clock
from arena.workspace.kernels import read_kernel
from problems.catalogue import Catalogue, load_catalogue
from problems.specification import LARGEST_SIZE, PRESETS, Problem
from problems.toml_fields import misfit_of
from sandbox.machine import thunderkittens
from sandbox.machine.devices import KINDS
from sandbox.protocol.events import AnyEvent
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict

LOWEST, HIGHEST = 0.0, 4.0
"""Limits of a correct kernel's reward. 4: the low end of the interval is 16 times the baseline's speed."""


def reward(report: RunRecord, low: float = LOWEST, high: float = HIGHEST) -> float:
    """Returns log2 of the low end of the speedup's 99 % interval, clipped to [low, high]; 0 if not passed.

    The low end excludes what may be noise, and rises towards the speedup when measured longer. A correct kernel that is
    not clearly faster gets 0, as a wrong kernel does, unless `low` is below 0. A run without timing gets 0.
    """
    if report.verdict is not Verdict.PASS:
        return 0.0
    speed = by_clock(report.speedup, report.clock)
    if speed is None or not speed.low > 0:
        return 0.0
    return min(max(math.log2(speed.low), low), high)


class RunOptions(TypedDict, total=False):
    """Options of a run. Missing options come from the settings file, then from the problem and this machine."""

    preset: Annotated[str, Meta(pattern=f"^({'|'.join(PRESETS)})$")]
    """ "tiny", "paper" or "production"."""
    world: Annotated[int, Meta(ge=1, le=MOST_RANKS)]
    """Ranks."""
    device: Annotated[str, Meta(pattern=f"^({'|'.join(KINDS)})$")]
    """ "cpu" or "cuda"."""
    dtype: str
    """torch's name: "bfloat16", "float32"..."""
    sizes: Mapping[str, Annotated[int, Meta(ge=1, le=LARGEST_SIZE)]]
    """Sizes that replace those of the preset."""
    rounds: Annotated[int, Meta(ge=0, le=MOST_ROUNDS)]
    """Timing rounds; 0 checks correctness only. Left out: as many as the noise requires."""
    budget_s: Annotated[float, Meta(ge=LEAST_BUDGET_S, le=MOST_BUDGET_S)]
    """Measuring time in seconds. Timing stops earlier when both clocks can conclude."""
    player: str
    """The player that results are kept under: "model:NAME". Left out: the user."""


class Arena:
    """Judges kernels on this machine. Use it as `async with Arena() as arena`; leaving the block ends all its processes.

    Runs are executed one after another, in the order of the calls. Each is journalled and indexed like a run of the
    command line.
    """

    def __init__(self, folder: str | Path | None = None, judge: Judge | None = None) -> None:
        """
        Args:
            folder: folder for settings, journals and results. None: the user's folders, as for the command line.
            judge: used instead of this machine's engine. It is not closed with the arena.

        Raises:
            SettingsError: the settings file is invalid.
        """
        self.paths: Paths = find_paths() if folder is None else paths_in(Path(folder).expanduser().absolute())
        """The folders of results, journals and settings."""
        self.settings: Settings = load_settings(self.paths)
        """The settings file's values."""
        thunderkittens.name(self.settings.thunderkittens)
        self.catalogue: Catalogue = load_catalogue(self.settings.problem_folders)
        """All problems, by id, category and class."""
        self._engine = Engine(self.paths)
        self._judge: Judge = judge if judge is not None else self._engine
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> "Arena":
        """Starts the judge.

        Raises:
            MachineError: it does not start, or the folder cannot be written.
        """
        await self._judge.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._engine.close()  # if another judge is used, the engine has started nothing

    @property
    def jail(self) -> str:
        """Name of the jail profile that kernels run in; "none" if this machine has no jail."""
        return self._judge.jail

    @property
    def problems(self) -> list[Problem]:
        """All problems."""
        return list(self.catalogue.problems)

    def problem(self, name: int | str) -> Problem:
        """Returns the problem with this id, slug or stem.

        Raises:
            UsageError: there is none.
        """
        return find_problem(self.catalogue, str(name))

    async def judge(self, problem: int | str, kernel: str | Path | Kernel, **options: Unpack[RunOptions]) -> RunRecord:
        """Judges a kernel and returns its report. Raises and is cancelled as `judgement`."""
        return (await self.judgement(problem, kernel, **options)).report

    async def judgement(
        self, problem: int | str, kernel: str | Path | Kernel, **options: Unpack[RunOptions]
    ) -> Judgement:
        """Judges a kernel and returns report, request and prints. Cancelling the call cancels the run.

        kernel: the text of a kernel, its texts by file name, or the path of its file or folder.

        Raises:
            UsageError: there is no such problem or file, an option is out of range, or the problem cannot be run with these
                options.
            MachineError: the device is missing, there are too few GPUs, or files cannot be written.
        """
        request = self._request(problem, kernel, options)
        async with self._turn:
            return await judge_to_end(self._judge, request)

    async def events(
        self, problem: int | str, kernel: str | Path | Kernel, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[AnyEvent]:
        """Judges a kernel and yields the run's events (`sandbox.protocol.events`); the last one is `Finished`, with the result.

        Closing the generator before its end cancels the run (`contextlib.aclosing` closes it at once).

        Raises as `judge`.
        """
        request = self._request(problem, kernel, options)
        async with self._turn:
            run = await self._judge.judge(request)
            try:
                async for event in run.events():
                    yield event
                await run.result()  # raises for a run that was refused or cancelled
            finally:
                await run.cancel()

    def _request(self, name: int | str, kernel: str | Path | Kernel, options: RunOptions) -> RunRequest:
        _check(options)
        problem = self.problem(name)
        asked: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        choice = Choice(**{name: asked[name] for name in Choice.__struct_fields__ if name in asked})
        file = read_kernel(kernel) if isinstance(kernel, Path) else None
        given = file.kernel if file else kernel if isinstance(kernel, Kernel) else Kernel(str(kernel))
        try:
            given.source.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"the kernel's text has half a character at position {error.start}, which no file can hold",
                "take the lone surrogate out",
            ) from None
        return view(
            RunRequest, given,
            problem=problem,
            setting=choose_setting(problem, choice, self.settings),
            kernel_name=file.name if file else "kernel.py",
            kernel_path=str(file.path.absolute()) if file else "",
            player=options.get("player", "you"),
            rounds=options.get("rounds"),
            budget_s=options.get("budget_s", self.settings.seconds),
        )  # fmt: skip


def _check(options: RunOptions) -> None:
    """Raises UsageError if an option is of the wrong type, or out of range."""
    hints = get_type_hints(RunOptions, include_extras=True)
    for name, value in options.items():
        if value not in (None, "") and (fault := misfit_of(name, value, hints[name])):
            raise UsageError(fault)
