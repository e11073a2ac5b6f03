"""The start of a duel: its players, and the header of its journal."""

import time

from arena.duel.events import DuelHeader, DuelPlayer, Kind
from arena.models.budget import BudgetPool
from arena.paths import Paths
from arena.players.make_player import make_player_or_file
from arena.players.player import Player, PlayerKind, PlayerSetup, Task
from arena.records.header import new_id
from arena.records.run_record import view
from arena.settings import Settings
from arena.workspace.named_kernels import HOUSE
from problems.catalogue import Catalogue
from problems.specification import Problem
from sandbox.protocol.events import Setting

Players = tuple[Player, Player]
"""Left and right."""
_KINDS: dict[PlayerKind, Kind] = {
    PlayerKind.NAMED: "baseline",
    PlayerKind.FILE: "file",
    PlayerKind.USER: "file",
    PlayerKind.MODEL: "model",
    PlayerKind.AGENT: "model",
}


def duel_players(
    words: tuple[str, str],
    owners: tuple[str, str],
    problem: Problem,
    setting: Setting,
    settings: Settings,
    catalogue: Catalogue,
    paths: Paths,
    budget_usd: float | None = None,
) -> Players:
    """Creates the players for two names or paths. May take seconds: see `make_player`.

    owners: owners of the kernel files. budget_usd: dollars that each side may spend; None: no limit.

    Raises:
        UsageError, MachineError: a player cannot play this problem in this setting.
    """
    left, right = (
        make_player_or_file(
            word,
            owner,
            Task(problem, setting),
            PlayerSetup(settings, catalogue, paths, BudgetPool(budget_usd), improves=True),
        )
        for word, owner in zip(words, owners, strict=True)
    )
    return left, right


def new_header(
    problem: Problem,
    setting: Setting,
    players: Players,
    minutes: float | None = None,
    rounds: int = 1,
    budget_usd: float | None = None,
) -> DuelHeader:
    """Returns the header of a duel that begins now. Draws a new duel id."""
    return view(
        DuelHeader, problem,
        duel_id=new_id(),
        created=time.time(),
        problem_id=problem.id,
        left=_facts(players[0]),
        right=_facts(players[1]),
        setting=setting,
        preset_sizes=setting.sizes == problem.presets.get(setting.preset),
        minutes=minutes,
        rounds=rounds,
        budget_usd=budget_usd,
    )  # fmt: skip


def _facts(player: Player) -> DuelPlayer:
    name = str(player.name)
    return DuelPlayer("house" if name == HOUSE else _KINDS[player.name.kind], name, player.kernel_path)
