"""The players of models, named kernels and kernel files, and the player for a name."""

import asyncio
import os
import stat
from pathlib import Path

from arena.errors import KernelUnreadable, PlayerFailed, UsageError
from arena.models.budget import price_words
from arena.models.model import find_model, open_model
from arena.players.agent import Agent
from arena.players.player import (
    KernelAccess,
    NoAnswer,
    Player,
    PlayerKind,
    PlayerName,
    PlayerSetup,
    Submission,
    Task,
    parse_player,
    trace_header,
    user_name,
)
from arena.players.program.player import ProgramPlayer
from arena.players.program.program import find_program
from arena.records.run_record import fields_of
from arena.workspace.kernels import KernelFile, read_kernel
from arena.workspace.named_kernels import NAMED, named_kernel
from arena.workspace.watcher import KernelWatcher
from problems.catalogue import Catalogue
from problems.specification import Problem
from sandbox.machine.processes import hide_from_ptrace
from sandbox.protocol.kernel_files import MAIN, Kernel

ABSENT = "is not there"


class FilePlayer(Player):
    """Submits a kernel from a file or a folder. If the task has a clock, every save is submitted.

    Of the saves during an evaluation, only the newest is submitted, after the evaluation or when the play is cancelled.

    A folder of kernels has STEM.py, SLUG.py or ID.py, or a subfolder of that name with a kernel.py. A folder that has a
    kernel.py itself is one kernel.
    """

    fixed = True
    submits_first = True
    """Whether the kernel at the start of the clock is submitted. If not, only saves after the check are submitted."""

    def __init__(self, name: PlayerName, path: Path) -> None:
        """
        Raises:
            UsageError: there is no such file or folder, or it cannot be read.
        """
        self.name = name
        self._checked: KernelFile | None = None
        self._path = path.expanduser().absolute()
        self.kernel_path = str(self._path)
        if not self._path.exists():
            raise UsageError(f"there is no file or folder {self._path}", "name the folder of your kernels")
        if not os.access(self._path, os.R_OK | (os.X_OK if self._path.is_dir() else 0)):
            raise UsageError(f"{self._path} cannot be read: Permission denied", "check its permissions")

    def check(self, task: Task) -> None:
        """
        Raises:
            UsageError, KernelUnreadable: as `play`.
        """
        self._checked = read_kernel(self._file(task.problem))

    async def play(self, task: Task, access: KernelAccess) -> Submission:
        """
        Raises:
            UsageError: the folder has no kernel for this problem.
            KernelUnreadable: the folder has a kernel, but it cannot be read.
        """
        path = self._file(task.problem)
        known = self._checked if access.clocked and not self.submits_first else None
        kernel = known if known is not None else await asyncio.to_thread(_read, path)
        if access.clocked:
            watcher = KernelWatcher(path, kernel.sha256)
            try:
                if self.submits_first:
                    await access.judge(kernel.kernel, kernel.name)
                async for save in watcher:
                    if isinstance(save, UsageError):
                        access.warn(f"not submitted: {save.message}")
                    else:
                        kernel = save
                        await access.judge(kernel.kernel, kernel.name)
            except asyncio.CancelledError:
                _leave_newest(path, kernel, access)
                raise
            finally:
                watcher.stop()
        return Submission(kernel.kernel, kernel.name)

    def _file(self, problem: Problem) -> Path:
        folder = self._path
        if folder.is_file():
            return folder
        names = (problem.stem, problem.slug, str(problem.id), f"{problem.id:02d}")
        places = [place for name in names for place in (folder / f"{name}.py", folder / name / MAIN)] + [folder / MAIN]
        wrong = {place: why for place in places if (why := _unreadable(place)) != ABSENT}
        if found := next((place for place, why in wrong.items() if not why), None):
            return found.parent if found.name == MAIN else found
        for place, why in wrong.items():
            raise KernelUnreadable(f"{place} {why}", "replace it by the kernel's Python file")
        raise UsageError(f"{folder} has no kernel for {problem.stem}", f"it would be {problem.stem}.py")


def _leave_newest(path: Path, known: KernelFile, access: KernelAccess) -> None:
    """Passes a save that was not submitted yet to `access.interrupted`. An empty file is an unfinished save."""
    try:
        newest = read_kernel(path)
    except UsageError as error:
        access.warn(f"not submitted: {error.message}")
        return
    if newest.text and newest.sha256 != known.sha256:
        access.interrupted(Submission(newest.kernel, newest.name))


def _unreadable(path: Path) -> str:
    """Returns why no kernel can be read from a path: empty if it is a regular file, ABSENT if it does not exist."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "is a link to nothing" if path.is_symlink() else ABSENT
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if stat.S_ISREG(mode) else "is no file with text"


def _read(path: Path) -> KernelFile:
    try:
        return read_kernel(path)
    except UsageError as error:
        raise KernelUnreadable(error.message, error.advice) from None


MODEL, AGENT, FILE = (f"{kind}:" for kind in (PlayerKind.MODEL, PlayerKind.AGENT, PlayerKind.FILE))


class FixedPlayer(Player):
    """Submits the kernel that the player's name stands for."""

    fixed = True

    def __init__(self, name: PlayerName, catalogue: Catalogue) -> None:
        self.name = name
        self._catalogue = catalogue

    def check(self, task: Task) -> None:
        self._kernel(task)

    async def play(self, task: Task, access: KernelAccess) -> Submission:
        file_name, source = self._kernel(task)
        return Submission(Kernel(source), file_name)

    def _kernel(self, task: Task) -> tuple[str, str]:
        found = named_kernel(self.name.name, task.problem, self._catalogue, task.setting.device)
        assert found is not None
        return found


class ModelPlayer(Player):
    """Submits the best kernel that a model wrote."""

    def __init__(self, name: PlayerName, setup: PlayerSetup) -> None:
        """May take seconds, because it may read a keyring.

        Raises:
            UsageError: no such model, no key, or dollars are limited and the model has no prices.
        """
        self.name = name
        self.model = model = find_model(name.name, setup.settings)
        self._setup = setup
        self._feedback = name.kind is PlayerKind.AGENT
        how = "gets its verdicts" if self._feedback else "independent answers"
        self.facts = f"{how} · {model.model} · {model.provider} · {price_words(model)}"
        open_model(name.name, setup.settings)  # raises its errors before anything starts
        setup.pool.close(setup.pool.open(model))
        hide_from_ptrace()  # this process now holds a key

    async def play(self, task: Task, access: KernelAccess) -> Submission:
        setup = self._setup
        assert self.model is not None
        budget = setup.pool.open(self.model)
        failed: PlayerFailed | None = None
        agent: Agent | None = None
        try:
            prompt = await asyncio.to_thread(setup.prompt, task)
            async with open_model(self.name.name, setup.settings, budget) as client:
                client.name = str(self.name)
                model = fields_of(self.model, "provider model")
                header = trace_header(task, prompt, access.steps, setup.pool.usd, player=client.name, **model)
                recorder = access.record(header, setup.paths)
                agent = Agent(client, access, prompt, recorder, setup.patience, self._feedback)
                await agent.play()
        except PlayerFailed as error:
            failed = error
        finally:
            spent = setup.pool.close(budget)
        if failed is not None and (agent is None or agent.best is None):
            raise NoAnswer(failed, spent)
        assert agent is not None
        best = agent.best or (agent.attempts[-1] if agent.attempts else None)
        if best is None or best.answer.outcome != "kernel":
            reason = best.answer.outcome if best is not None else agent.reason
            return Submission(None, "", reason, spent, header.trace_id, agent.reason)
        return Submission(best.kernel, "kernel.py", "", spent, header.trace_id, agent.reason)


def make_player(word: str, setup: PlayerSetup) -> Player:
    """Creates the player for a name (see `arena.players.player`).

    May take seconds, because it may test a jail or read a keyring.

    Raises:
        UsageError: there is no such player, model, key, agent or folder, or dollars are limited and its model has no prices.
        MachineError: there is no jail for an agent program, or no MCP SDK.
    """
    name = parse_player(word)
    match name.kind:
        case PlayerKind.FILE:
            return FilePlayer(name, Path(name.name))
        case PlayerKind.MODEL:
            return ModelPlayer(name, setup)
        case PlayerKind.AGENT:
            program = find_program(name.name, setup.settings)
            return ModelPlayer(name, setup) if program is None else ProgramPlayer(name, program, setup)
        case _:
            return FixedPlayer(name, setup.catalogue)


def make_player_or_file(word: str, owner: str, task: Task, setup: PlayerSetup) -> Player:
    """As `make_player`, but any other word is the path of `owner`'s kernel file. Checks that the player fits the task.

    Raises:
        UsageError: as `make_player`, or the player has no kernel for this task, or the file cannot be read.
        MachineError: as `make_player`.
    """
    path = Path(word).expanduser().absolute()
    if word in NAMED or word.startswith((MODEL, AGENT, FILE)) or (word.isidentifier() and not path.exists()):
        player = make_player(word, setup)
    else:
        read_kernel(path)
        player = FilePlayer(user_name(owner), path)
    player.check(task)
    return player
