"""Runs an agent program in a jail of its own, lists the programs of this machine, and checks what they need."""

import asyncio
import contextlib
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from arena.errors import ArenaError, MachineError, PlayerFailed
from arena.machine.finding import MachineFinding, isolation_advice, limited, ok
from arena.models.budget import Budget
from arena.paths import Paths
from arena.players.program import bridge
from arena.players.program.bridge import HOME_FILES
from arena.players.program.gateway import Gateway
from arena.players.program.mcp_server import MESSAGE_BYTES, require_sdk, serve_connection
from arena.players.program.program import BUILT_IN, AgentProgram, installation
from arena.players.program.watch import LEAVE_S, LIMIT, ProgramEnd, Watch, how_it_ended
from arena.players.tools import ToolSet
from arena.settings import AgentSettings, Settings
from sandbox.jail.choice import Jail, choose
from sandbox.jail.memory import AgentUsage
from sandbox.jail.profiles import WITH_AGENTS, Caps, agent_interpreter
from sandbox.machine.locked_folder import AGENT, LockedFolder
from sandbox.machine.processes import hide_from_ptrace

PORT = 8765
"""Port of the gateway to the provider inside the jail, which has its own network namespace."""
TOOL_TIMEOUT_MS = 7_200_000
"""For MCP clients that read it. A tool call blocks until the devices are free."""
GEMINI = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
"""Gemini CLI reads its servers and this from a file in its home only."""
TOOL_CONNECTIONS = 4
"""Most connections of a program to its tools at once."""


def agent_jail() -> Jail:
    """Returns the jail for agent programs. Tests it, which takes a moment.

    Raises:
        MachineError: this machine has no jail that can isolate an agent program.
    """
    jail = choose()
    if jail.name not in WITH_AGENTS:
        raise MachineError(
            f"an agent program needs a jail with a process table of its own, and this machine's is {jail.name!r}",
            isolation_advice(jail.name),
        )
    return jail


async def run_program(
    program: AgentProgram, task: str, tools: ToolSet, budget: Budget | None, paths: Paths, watch: Watch
) -> ProgramEnd:
    """Runs the program with the task on stdin until it ends or is stopped. Then removes all its processes and files.

    budget: the budget of its model, if it has one.

    Raises:
        MachineError: there is no jail for it, or no SDK.
        PlayerFailed: it cannot be started.
    """
    require_sdk()
    jail = await asyncio.to_thread(agent_jail)
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(_folder())
        _write(folder / "task.md", task)
        shutil.copy(bridge.__file__, folder / "bridge.py")
        (folder / "bridge.py").chmod(0o644)
        exceeded: list[str] = []
        enough = watch.enough
        watch = replace(watch, enough=lambda: LIMIT + exceeded[0] if exceeded else enough())
        await stack.enter_async_context(_tool_socket(tools, folder / "tools.sock", exceeded.append))
        python, bridge_file, socket = (str(agent_interpreter()), str(folder / "bridge.py"), str(folder / "tools.sock"))
        start = [python, "-I", "-S", bridge_file]
        endpoint = model_socket = ""
        if program.model is not None:
            model_socket = str(folder / "model.sock")
            model_budget = budget or Budget(program.model)
            gateway = Gateway(program.model, model_budget, Path(model_socket), exceeded.append, watch.hear)
            await stack.enter_async_context(gateway)
            endpoint = f"http://127.0.0.1:{PORT}{gateway.base_path}"
        server = {"command": python, "args": ["-I", "-S", bridge_file, "stdio", socket], "timeout": TOOL_TIMEOUT_MS}
        _write(folder / "run", f'#!/bin/sh\nexec {shlex.join([*start, "run", socket])} "$@"\n', 0o755)
        config = {"mcpServers": {"arena": server}}
        _write(folder / "mcp.json", msgspec.json.encode(config).decode())
        _write(folder / HOME_FILES / ".gemini" / "settings.json", msgspec.json.encode(GEMINI | config).decode())
        places = {
            "{mcp}": str(folder / "mcp.json"),
            "{socket}": socket,
            "{python}": python,
            "{bridge}": bridge_file,
            "{task}": str(folder / "task.md"),
            "{endpoint}": endpoint,
            "{root}": endpoint.removesuffix("/v1beta"),
            "{model}": program.model.model if program.model is not None else "",
        }
        argv = ["nice", "-n", "19", *start, "play", socket, str(PORT), model_socket]
        argv += [_filled(word, places) for word in program.command]
        extra = {name: _filled(value, places) for name, value in program.environment.items()}
        extra |= {"PKB_ARENA_MCP": places["{mcp}"], "PKB_ARENA_TASK": places["{task}"]}
        extra["PKB_ARENA_RUN"] = str(folder / "run")
        caps, hidden = program.caps, (paths.config, paths.data, paths.state)
        readable = (folder, *program.readable)
        # In a thread, because the search for a writable control group starts a process.
        usage = await asyncio.to_thread(AgentUsage, jail.profile, folder, caps)
        stack.callback(usage.close)
        wrapped = jail.profile.wrap(argv, folder, extra, readable, jail.filter_fd(caps), (), caps, hidden)
        try:
            with (folder / "task.md").open("rb") as given:
                process = await asyncio.create_subprocess_exec(
                    *usage.starts(wrapped.argv),
                    **wrapped.inherited,
                    stdin=given,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    start_new_session=True,
                )
        except OSError as error:
            raise PlayerFailed(f"{program.name} cannot be started: {error}") from None
        finally:
            wrapped.close()
        ended = await watch.to_its_end(process, usage)
        return replace(ended, code=None, stopped=LIMIT + exceeded[0]) if exceeded and not ended.stopped else ended


@asynccontextmanager
async def _tool_socket(tools: ToolSet, path: Path, exceeded: Callable[[str], object]) -> AsyncIterator[None]:
    """Serves the tools. exceeded: called with the limit that the program has broken."""
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(connections) == TOOL_CONNECTIONS:
            exceeded(f"connections: it opened more than {TOOL_CONNECTIONS} to its tools at once")
            writer.transport.abort()
            return
        task = asyncio.create_task(serve_connection(tools, reader, writer, exceeded))
        connections.add(task)
        task.add_done_callback(ended)

    def ended(task: asyncio.Task[None]) -> None:
        connections.discard(task)
        if not task.cancelled():
            task.exception()  # a connection that breaks is the program's own business

    try:
        server = await asyncio.start_unix_server(accept, path, limit=MESSAGE_BYTES)
    except OSError as error:
        raise MachineError(f"no socket {path}: {error}", "set TMPDIR to a folder with a short path") from None
    path.chmod(0o666)
    try:
        yield
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        if connections:
            await asyncio.wait(list(connections), timeout=LEAVE_S)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Creates a folder that other users of this machine cannot reach. Inside the jail it is mounted, thus readable."""
    with LockedFolder(AGENT) as outer:
        inner = outer.path.resolve() / "arena"
        inner.mkdir(mode=0o755)
        inner.chmod(0o755)
        yield inner


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _filled(word: str, places: dict[str, str]) -> str:
    for place, value in places.items():
        word = word.replace(place, value)
    return word


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
            jail, argv = agent_jail(), [*start, option]
            wrapped = jail.profile.wrap(argv, Path(folder), table.environment, readable, jail.filter_fd(caps), (), caps)
            with contextlib.closing(wrapped):
                done = subprocess.run(
                    wrapped.argv,
                    **wrapped.inherited,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=VERSION_S,
                    check=False,
                )
    except (ArenaError, OSError, subprocess.TimeoutExpired) as error:
        said = f"no end within {VERSION_S:g} s" if isinstance(error, subprocess.TimeoutExpired) else error
        return limited(f"agent:{name}", f"does not start in its jail: {said}", "read docs/guide/agents.md")
    version = re.search(r"\d+(\.\w+)+", done.stdout + done.stderr)
    if done.returncode == 0 and version is not None:
        return ok(f"agent:{name}", f"{version[0]} starts in its jail")
    found = f"does not start in its jail: {how_it_ended(done.returncode, done.stderr or done.stdout)}"
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
