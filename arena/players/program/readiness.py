"""Lists the agent programs of this machine, and checks the requirements of a program."""

import shutil

from arena.players.program.gateway import Gateway
from arena.players.program.jailed import agent_jail
from arena.players.program.mcp_server import require_sdk
from arena.players.program.program import BUILT_IN, AgentProgram
from arena.settings import Settings
from sandbox.machine.processes import hide_from_ptrace


def known_programs(settings: Settings) -> list[str]:
    """Lists the tables [agents.NAME], then the installed built-in programs. Leaves out names that are also models."""
    installed = (name for name, built_in in BUILT_IN.items() if shutil.which(built_in.command[0]) is not None)
    return [name for name in dict.fromkeys([*settings.agents, *installed]) if name not in settings.models]


def require_ready(program: AgentProgram) -> None:
    """Checks that a program can play. May take seconds, because it tests the jail and may read a keyring.

    Raises:
        UsageError: its model has no key, or no provider.
        MachineError: there is no jail for it, or no MCP SDK.
    """
    require_sdk()
    agent_jail()
    if program.model is not None:
        Gateway.check(program.model)
        hide_from_ptrace()  # this process now holds a key
