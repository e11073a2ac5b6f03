"""Lists the agent programs of this machine, and checks the requirements of a program."""

import contextlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from arena.errors import ArenaError, MachineError
from arena.machine.finding import MachineFinding, limited, ok
from arena.players.program.gateway import Gateway
from arena.players.program.jailed import agent_jail
from arena.players.program.mcp_server import require_sdk
from arena.players.program.program import BUILT_IN, AgentProgram, installation
from arena.players.program.watch import first_and_last
from arena.settings import AgentSettings, Settings
from sandbox.jail.profiles import Caps
from sandbox.machine.processes import hide_from_ptrace

VERSION_S = 30.0
_NO_VERSION = {"mini-swe-agent": "--help"}
"""Programs without the option --version, and one that prints the version, too."""


def known_programs(settings: Settings) -> list[str]:
    """Lists the tables [agents.NAME], then the installed built-in programs. Leaves out names that are also models."""
    installed = (name for name, built_in in BUILT_IN.items() if shutil.which(built_in.command[0]) is not None)
    return [name for name in dict.fromkeys([*settings.agents, *installed]) if name not in settings.models]


def program_findings(settings: Settings) -> Iterator[MachineFinding]:
    """Starts each installed built-in program in its jail, which takes seconds. Yields nothing without such a jail."""
    installed = [name for name in BUILT_IN if shutil.which(BUILT_IN[name].command[0]) is not None]
    with contextlib.suppress(MachineError):
        agent_jail()
        with ThreadPoolExecutor() as threads:
            tables = (settings.agents.get(name, AgentSettings()) for name in installed)
            yield from threads.map(_finding, installed, tables)


def _finding(name: str, table: AgentSettings) -> MachineFinding:
    option, caps = _NO_VERSION.get(name, "--version"), Caps(4 << 30, 1024, 1 << 30, VERSION_S)
    try:
        start, needed = installation(Path(shutil.which(BUILT_IN[name].command[0]) or name).resolve())
        with tempfile.TemporaryDirectory(prefix="pkb-agent-") as folder:
            readable = (*needed, *(Path(path).expanduser() for path in table.readable))
            wrapped = agent_jail().wrap([*start, option], Path(folder), table.environment, readable, caps=caps)
            with contextlib.closing(wrapped):
                done = subprocess.run(
                    wrapped.argv,
                    env=wrapped.env,
                    pass_fds=wrapped.fds,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=VERSION_S,
                    check=False,
                )
    except (ArenaError, OSError, subprocess.TimeoutExpired) as error:
        return limited(f"agent:{name}", f"does not start in its jail: {error}", "read docs/guide/agents.md")
    version = re.search(r"\d+(\.\w+)+", done.stdout + done.stderr)
    if done.returncode == 0 and version is not None:
        return ok(f"agent:{name}", f"{version[0]} starts in its jail")
    why = first_and_last(done.stderr or done.stdout)
    found = f"does not start in its jail: exit status {done.returncode}" + (f": {why}" if why else "")
    return limited(f"agent:{name}", found, "name what it must read in `readable` of its table [agents.NAME]")


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
