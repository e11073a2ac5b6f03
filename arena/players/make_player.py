"""Creates the player for a player's name."""

from pathlib import Path

from arena.players.file import FilePlayer
from arena.players.fixed import FixedPlayer
from arena.players.model import ModelPlayer
from arena.players.player import Player, PlayerKind, PlayerSetup, Task, parse_player, user_name
from arena.players.program.player import ProgramPlayer
from arena.players.program.program import find_program
from arena.workspace.kernels import read_kernel
from arena.workspace.named_kernels import NAMED

MODEL, AGENT, FILE = (f"{kind}:" for kind in (PlayerKind.MODEL, PlayerKind.AGENT, PlayerKind.FILE))


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
    if word in NAMED or word.startswith((MODEL, AGENT, FILE)):
        player = make_player(word, setup)
    else:
        path = Path(word).expanduser().absolute()
        read_kernel(path)
        player = FilePlayer(user_name(owner), path)
    player.check(task)
    return player
