"""A duel's player before it plays: what it is, what it costs, and why it cannot play."""

from dataclasses import dataclass

from arena.errors import UsageError
from arena.models.budget import has_prices, price_words
from arena.models.model import find_model, model_player
from arena.players.make_entrant import AGENT, MODEL
from arena.players.program.program import named_program
from arena.players.program.readiness import require_ready
from arena.settings import Settings
from sandbox.machine.processes import hide_from_ptrace


@dataclass(frozen=True)
class PlayerFacts:
    """Of one player."""

    words: str = ""
    """A sentence; empty for kernels and people, who need none."""
    spends: bool = False
    """A provider is paid for what it does."""
    priced: bool = False
    """What it spends can be counted in dollars."""


def player_facts(word: str, settings: Settings) -> PlayerFacts:
    """The facts about a word of the command line. May take seconds: a jail is tested, and a keyring may be asked.

    Raises:
        UsageError: there is no such model or program, it is not installed, or it has no key or no model.
        MachineError: there is no jail for an agent program, or no MCP SDK.
    """
    if word.startswith(MODEL):
        name = word.removeprefix(MODEL)
        model = find_model(name, settings)
        model_player(name, settings)
        hide_from_ptrace()  # this process now holds a key
        return PlayerFacts(
            f"{model.model} · {model.provider} · {price_words(model)}", True, has_prices(model)
        )
    if word == AGENT:
        raise UsageError(
            "no program is named", "give a path, or a command that begins with one: ./my_agent.py --fast"
        )
    if word.startswith(AGENT):
        program = named_program(word.removeprefix(AGENT), settings)
        require_ready(program)
        jail = f"in a jail of its own, {program.seconds / 60:g} min"
        if program.model is None:
            return PlayerFacts(f"{jail} · reaches no model, costs nothing")
        costs = f"{program.model.model} · {price_words(program.model)}"
        return PlayerFacts(f"{jail} · {costs}", True, has_prices(program.model))
    return PlayerFacts()
