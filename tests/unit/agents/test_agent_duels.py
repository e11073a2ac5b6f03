"""Agent programs and models as players of a duel, and their budgets: real requests to a provider on this machine."""

from pathlib import Path
from typing import Any

import pytest
from model_server import KEY, ModelServer, streamed
from scripted_agents import KERNELS

from arena.duel.events import KernelJudged
from arena.duel.journal import read_duel
from arena.duel.match import Match, duel_players, new_header
from arena.paths import Paths
from arena.players.make_player import ModelPlayer
from arena.players.player import KernelAccess, Player, PlayerKind, PlayerName, PlayerSetup, Submission, Task
from arena.players.program.player import ProgramPlayer
from arena.players.trace import Returned, read_trace
from arena.runs.engine import Engine
from arena.setting_choice import Choice, choose_setting
from arena.settings import AgentSettings, ModelSettings, Settings
from problems.catalogue import load_catalogue
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict

CATALOGUE = load_catalogue()
PROBLEM = CATALOGUE.find("1")
SETTING = choose_setting(PROBLEM, Choice(world=2, device="cpu", dtype="float32"), Settings())
PRICED = {"provider": "anthropic", "model": "cheap", "key_env": "TEST_KEY", "price_in": 1.0, "price_out": 1.0}
"""An answer of the server has 100 input and 50 output tokens, so it costs $0.00015."""


def settings_for(model_server: ModelServer, command: list[str], **variables: str) -> Settings:
    return Settings(
        models={"cheap": ModelSettings(**PRICED, base_url=model_server.url)},  # type: ignore[arg-type]
        agents={
            "mine": AgentSettings(
                command=command, model="cheap", environment=KERNELS | {"ENDPOINT": "{endpoint}"} | variables
            )
        },
    )


def player_for(word: str, settings: Settings, paths: Paths, budget_usd: float | None = None) -> Player:
    words, owners = (word, "baseline"), ("you", "guest")
    return duel_players(words, owners, Task(PROBLEM, SETTING), PlayerSetup(settings, CATALOGUE, paths), budget_usd)[0]


class Wrong(Player):
    """A player that submits a wrong kernel."""

    name = PlayerName(PlayerKind.NAMED, "other")

    async def play(self, task: Task, access: KernelAccess) -> Submission:
        return Submission(Kernel("wrong"))


def match_of(engine: Engine, paths: Paths, player: Player, budget_usd: float | None, rounds: int = 2) -> Match:
    players = (player, Wrong())
    header = new_header(PROBLEM, SETTING, players, rounds=rounds, budget_usd=budget_usd)
    return Match(engine, paths, PROBLEM, header, players)


def told(match: Match, paths: Paths, kind: type[Any]) -> list[Any]:
    events = read_duel(paths.duels / f"{match.state.header.duel_id}.jsonl")
    return [event for event in events if isinstance(event, kind) and event.side == "left"]


@pytest.mark.usefixtures("jailed_agents")
async def test_a_program_plays_a_duel(engine: Engine, paths: Paths, script: Path) -> None:
    settings = Settings(agents={"mine": AgentSettings(command=[str(script)], environment=KERNELS)})
    player = player_for("agent:mine", settings, paths)
    assert isinstance(player, ProgramPlayer)
    assert player.model is None
    match = match_of(engine, paths, player, None)
    ended = await match.play()
    assert ended.winner == "left", ended
    verdicts = [event.verdict for event in told(match, paths, KernelJudged)]
    assert verdicts == [Verdict.WRONG_RESULT, Verdict.PASS]
    (trace,) = paths.traces.glob("*.jsonl")
    assert sum(isinstance(event, Returned) for event in read_trace(trace)) == 2


async def test_model_stops_at_budget_and_its_kernels_count(
    engine: Engine, paths: Paths, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    model_server.replies = [streamed("```python\npass\n\ndef solution(): pass\n```\n", usage=(500_000, 600_000))]
    settings = settings_for(model_server, [])
    player = player_for("model:cheap", settings, paths, 2.0)
    assert isinstance(player, ModelPlayer)
    match = match_of(engine, paths, player, 2.0, rounds=5)
    ended = await match.play()
    assert len(model_server.seen) == 2  # $1.1 each
    assert ended.left.stopped == "the budget of $2 is spent"
    assert [event.verdict for event in told(match, paths, KernelJudged)] == [Verdict.PASS] * 2
    assert ended.winner == "left"
    assert ended.left.usd == pytest.approx(2.2)
