"""Agent programs, and the player names that select them.

agent:NAME        a table [agents.NAME] of the settings, or a program of `BUILT_IN`
agent:COMMAND     a command whose first word is a path: agent:./my_agent.py --fast
agent:MODEL       no program: a model with the arena's tools (`arena/players/make_player.py`); checked first
"""

import json
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from arena.errors import UsageError
from arena.models.model import find_model
from arena.settings import AgentSettings, ModelSettings, Settings, provider_names
from sandbox.jail.profiles import Caps, agent_interpreter

PYTHON = "{python}"
"""In a command, this word is replaced by an interpreter without packages."""

_CLAUDE = """claude --print --verbose --output-format stream-json --model {model} --strict-mcp-config --mcp-config {mcp}
--allowedTools 'mcp__arena Read Write Edit Bash'"""
_CODEX = """codex exec --skip-git-repo-check --sandbox danger-full-access --model {model} -c 'model_provider="arena"'
-c 'model_providers.arena={name="arena",base_url="{endpoint}",env_key="ARENA_KEY",wire_api="responses"}'
-c 'mcp_servers.arena={command="{python}",args=["-I","-S","{bridge}","stdio","{socket}"],tool_timeout_sec=7200}' -"""
_MINI = """mini --model openai/{model} --task 'Read the file {task} and do what it says.' --yolo --exit-immediately
--cost-limit 0 --config mini.yaml --config environment.timeout=7200 --output /tmp/trajectory.json"""
_AIDER = """aider --model openai/{model} --message-file {task} --yes-always --no-git --no-check-update --no-show-release-notes
--no-show-model-warnings --analytics-disable --no-suggest-shell-commands --no-detect-urls --no-pretty --auto-test
--test-cmd '$PKB_ARENA_RUN kernel.py' kernel.py"""
NO_KEY = "the-arena-has-it"
_OPENCODE: dict[str, Any] = {
    "provider": {
        "arena": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "{endpoint}", "apiKey": NO_KEY},
            "models": {"{model}": {}},
        }
    },
    "small_model": "arena/{model}",
    "mcp": {
        "arena": {
            "type": "local",
            "command": [PYTHON, "-I", "-S", "{bridge}", "stdio", "{socket}"],
            "timeout": 7_200_000,
        }
    },
    "autoupdate": False,
    "share": "disabled",
}
_OPENAI = {"OPENAI_API_BASE": "{endpoint}", "OPENAI_API_KEY": NO_KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "true"}

BUILT_IN = {
    "claude-code": AgentSettings(
        command=shlex.split(_CLAUDE),
        environment={
            "ANTHROPIC_BASE_URL": "{endpoint}",
            "ANTHROPIC_API_KEY": NO_KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
            "MCP_TOOL_TIMEOUT": "7200000",
        },
    ),
    "codex": AgentSettings(command=shlex.split(_CODEX), environment={"ARENA_KEY": NO_KEY}),
    "gemini-cli": AgentSettings(
        command=shlex.split("gemini --model {model} --yolo --skip-trust"),
        environment={"GEMINI_API_KEY": NO_KEY, "GOOGLE_GEMINI_BASE_URL": "{root}"},
    ),
    "opencode": AgentSettings(
        command=shlex.split("opencode run --model arena/{model} --auto"),
        environment={
            "OPENCODE_CONFIG_CONTENT": json.dumps(_OPENCODE),
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
        },
    ),
    "mini-swe-agent": AgentSettings(
        command=shlex.split(_MINI),
        environment={**_OPENAI, "MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"},
    ),
    "aider": AgentSettings(command=shlex.split(_AIDER), environment=_OPENAI),
}
"""Programs known by name: how each is started. The model comes from a table [agents.NAME] of the settings.
Tool timeouts are long because a tool call blocks until the devices are free."""

SPEAKS = {"claude-code": "anthropic", "codex": "openai_responses", "gemini-cli": "gemini"}
"""The providers of known programs; the others speak openai_chat."""


@dataclass(frozen=True)
class AgentProgram:
    """A program that can be started."""

    name: str
    """The part of the player's name after `agent:`."""
    command: tuple[str, ...]
    """Command line with the placeholders {mcp}, {socket}, {python}, {bridge}, {task}, {endpoint}, {root} and {model}."""
    model: ModelSettings | None
    """The only model that it may reach; None: it has no network."""
    model_name: str
    seconds: float
    readable: tuple[Path, ...]
    environment: dict[str, str]
    caps: Caps


def find_program(name: str, settings: Settings) -> AgentProgram | None:
    """Returns the program of that name; None if the name is a model's, or unknown.

    Raises:
        UsageError: the program, its command, its model or a readable path is missing, or the command is invalid.
    """
    if name in settings.models:
        return None
    if why := settings.why_wrong("agents", name):
        raise UsageError(f"{why}, so this program cannot be used", "correct its table (see `pkb-arena config path`)")
    if name in settings.agents or name in BUILT_IN:
        own = BUILT_IN.get(name, AgentSettings())
        chosen = settings.agents.get(name, own)
        if not chosen.command:
            chosen = msgspec.structs.replace(
                chosen, command=own.command, environment={**own.environment, **chosen.environment}
            )
        if not chosen.command:
            raise UsageError(f"[agents.{name}] has no command", 'add one: command = ["my-agent", "--mcp", "{mcp}"]')
        if any("{model}" in word for word in chosen.command) and not chosen.model:
            raise UsageError(
                f"agent:{name} has no model",
                f'add it to the settings: [agents.{name}] model = "NAME", with a table [models.NAME]',
            )
        speaks = SPEAKS.get(name, "openai_chat")
        if chosen.command == own.command and (model := find_model(chosen.model, settings)).provider != speaks:
            raise UsageError(
                f"agent:{name} speaks {speaks}, and its model {chosen.model} has provider {model.provider}",
                f'name a model with provider = "{speaks}" in [agents.{name}]',
            )
        return _made(name, chosen, settings)
    if name.partition(":")[0] in provider_names():
        return None
    try:
        words = shlex.split(name)
    except ValueError as error:
        raise UsageError(f"agent:{name} is no command: {error}", "close its quotation marks") from None
    if not words or "/" not in words[0]:
        return None
    return _made(name, AgentSettings(command=words), settings)


def _made(name: str, chosen: AgentSettings, settings: Settings) -> AgentProgram:
    first, *rest = chosen.command
    readable = [Path(path).expanduser().absolute() for path in chosen.readable]
    missing = [path for path in readable if not path.exists()]
    if missing:
        raise UsageError(f"agent:{name}: there is no {missing[0]}", "correct `readable` in its table")
    if first != PYTHON:
        found = shutil.which(str(Path(first).expanduser()) if "/" in first else first)
        if found is None and "/" in first and Path(first).expanduser().is_file() and first.endswith(".py"):
            found = str(Path(first).expanduser())
        if found is None:
            whose = "" if first == name else f"agent:{name}: "
            raise UsageError(f"{whose}there is no program {first!r}", "install it, or name its path")
        program = Path(found).resolve()
        if program == Path(sys.executable).resolve():
            program = agent_interpreter()
        start, needed = installation(program)
        readable += needed
        rest = [*start, *rest]
    else:
        rest = [PYTHON, *rest]
    return AgentProgram(
        name=name,
        command=tuple(rest),
        model=find_model(chosen.model, settings) if chosen.model else None,
        model_name=chosen.model,
        seconds=chosen.minutes * 60,
        readable=tuple(readable),
        environment=dict(chosen.environment),
        caps=Caps(chosen.memory_mib << 20, chosen.processes, chosen.disk_mib << 20, chosen.cpu_minutes * 60),
    )


BESIDE_BIN = ("lib", "lib64", "libexec", "src", "dist", "node_modules", "package.json")
"""Where a program in a folder `bin` has the rest of its package."""


def installation(program: Path) -> tuple[list[str], list[Path]]:
    """Returns the words that start a program, and the paths that it reads: itself, its package and its interpreter.

    Raises:
        UsageError: its interpreter is not installed.
    """
    needed = [program]
    if packages := [parent for parent in program.parents if parent.name == "node_modules"]:
        needed.append(packages[-1])  # with the packages that it depends on
    elif program.parent.name == "bin" and program.parents[1] != Path.home():
        needed += [program.parents[1] / name for name in BESIDE_BIN]
    if program.suffix == ".py":
        return [PYTHON, str(program)], _there(needed)
    with program.open("rb") as file:
        first = file.readline(1000)
    words = shlex.split(first[2:].decode(errors="replace")) if first.startswith(b"#!") else []
    if not words:
        return [str(program)], _there(needed)
    variables: list[str] = []
    if Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
        while words and "=" in words[0]:
            variables.append(words.pop(0))
    found = shutil.which(words[0]) if words else None
    if found is None:
        raise UsageError(f"{program} needs {' '.join(words)!r}, which is not installed", "install it")
    interpreter, start = Path(found).resolve(), found
    needed.append(interpreter)
    if interpreter.name.startswith("python") and not Path.home().is_relative_to(interpreter.parents[1]):
        needed.append(interpreter.parents[1])
        environment = Path(found).parent.resolve().parent
        if (environment / "pyvenv.cfg").is_file():
            needed.append(environment)
            start = str(environment / "bin" / Path(found).name)
    return [*(["/usr/bin/env", *variables] if variables else []), start, *words[1:], str(program)], _there(needed)


def _there(paths: list[Path]) -> list[Path]:
    """Leaves out what does not exist, and what every jail shows."""
    return [path for path in paths if path.exists() and not str(path).startswith(("/usr/", "/opt/"))]
