"""The arena as a tool server: with the SDK's own client over stdio, and what callers cannot do."""

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from forked_programs import COMMAND_LINE
from playing_agent import RIGHT, WRONG
from scripted_referee import COMMAND as SCRIPTED
from waiting import PATIENCE_S

from arena.errors import UsageError
from arena.mcp import ArenaTools, Terms
from arena.paths import Paths, find_paths
from arena.players.tools import RESULT_CHARACTERS
from arena.records.index import Store
from arena.runs.engine import Engine
from arena.setting_choice import Choice
from arena.settings import Settings
from problems.catalogue import load_catalogue

if importlib.util.find_spec("mcp") is None and not os.environ.get("CI"):
    pytest.skip("the MCP SDK is not installed: pip install 'pkb-arena[mcp]'", allow_module_level=True)


@asynccontextmanager
async def serving(referee: Sequence[str], *options: str) -> AsyncIterator[Any]:
    """Yields a client of `pkb-arena mcp`, which runs in a process of its own. referee: the command that starts its referee."""
    from mcp.client import Client  # here, because its import takes a second in every process that collects tests
    from mcp.client.stdio import StdioServerParameters, stdio_client

    command = ["-P", "-c", COMMAND_LINE, "mcp", *options]
    environment = os.environ | {"PKB_TEST_REFEREE": json.dumps(referee)}
    server = StdioServerParameters(command=sys.executable, args=command, env=environment)
    async with asyncio.timeout(PATIENCE_S), Client(stdio_client(server)) as client:
        yield client


async def told(client: Any, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    return "".join(getattr(content, "text", "") for content in result.content)


@pytest.mark.slow
@pytest.mark.usefixtures("jail", "small_budget")
async def test_client_repairs_failing_kernel_and_passes(paths: Paths, shared_referee: Any):
    options = ("--device", "cpu", "--world", "2", "--preset", "tiny", "--dtype", "float32")
    async with serving(shared_referee.command, *options) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {"list", "show", "new", "compile", "run", "history", "kit_docs"}
        assert "1  allreduce" in await told(client, "list", category="collective")
        assert "solution(tensor)" in await told(client, "show", problem=1)
        assert "# Verdict: WRONG_RESULT" in (failure := await told(client, "run", problem=1, source=WRONG))
        assert "First wrong element" in failure
        assert "# Verdict: PASS" in await told(client, "run", problem="allreduce", source=RIGHT)
        history = await told(client, "history", problem=1)
    assert [line.split()[2] for line in history.splitlines()] == ["PASS", "WRONG_RESULT"]
    store = Store(paths.database, paths.runs)
    assert {entry.player for entry in store.history(1, "mcp")} == {"mcp"}
    store.close()


@pytest.fixture
async def tools() -> AsyncIterator[ArenaTools]:
    """The arena's tools, with the scripted referee."""
    async with Engine(find_paths(), command=SCRIPTED) as engine:
        terms = Terms(choice=Choice(device="cpu", world=2), unsafe=True)
        yield ArenaTools(engine, load_catalogue([]), Settings(), find_paths(), terms)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("show", {"problem": "no_such"}, "no_such"),
        ("run", {"problem": 13}, "source"),
        ("run", {"problem": 13, "source": "   "}, "empty"),
        ("run", {"problem": 13, "source": "pass", "path": "/etc/passwd"}, "no argument 'path'"),
        ("show", {}, "`problem` is missing: Id, name, or both"),
        ("kit_docs", {}, "`page` is missing: choose from symm, cpp"),
        ("run", {"problem": 13, "source": "pass", "world": 99}, "What to do: choose world from 1, 2"),
        ("run", {"problem": 13, "source": "pass", "device": "abacus"}, "abacus"),
        ("run", {"problem": 13, "source": "pass", "sizes": {"Q": 1}}, "Q"),
        ("run", {"problem": 13, "source": "pass", "preset": "huge"}, "huge"),
        ("new", {"problem": 13, "template": "cobol"}, "cobol"),
        ("kit_docs", {"page": "../../../etc/passwd"}, "no page"),
        ("list", {"category": "no_such"}, "no_such"),
        ("house", {"problem": 13}, "no such tool"),
    ],
)
async def test_what_cannot_be_done_is_said(tools: ArenaTools, tool: str, arguments: dict, said: str):
    answer = await tools.call(tool, arguments)
    assert answer.error
    assert said in answer.text


async def test_the_house_is_read_where_that_is_allowed(tools: ArenaTools):
    allowed = ArenaTools(tools._judge, load_catalogue([]), Settings(), find_paths(), Terms(house=True))
    assert "house" in {tool.name for tool in allowed.tools}
    assert "def solution" in (await allowed.call("house", {"problem": 13})).text
    for tool in tools.tools:
        assert tool.name != "house"


@pytest.mark.problems
async def test_every_page_is_bounded_and_whole(tools: ArenaTools):
    for problem in load_catalogue([]).problems:
        page = await tools.call("show", {"problem": problem.id})
        assert not page.error
        assert len(page.text) < RESULT_CHARACTERS, problem.stem


async def test_starter_is_handed_over_and_nothing_is_written(tools: ArenaTools, paths: Paths):
    assert "def solution" in (await tools.call("new", {"problem": 13})).text
    assert not paths.workspace.exists()


async def test_without_a_jail_nothing_is_judged(tools: ArenaTools):
    careful = ArenaTools(tools._judge, load_catalogue([]), Settings(), find_paths(), Terms(choice=Choice(device="cpu")))
    answer = await careful.call("run", {"problem": 13, "source": "pass"})
    assert answer.error
    assert "without a jail" in answer.text


def test_without_sdk_command_says_what_to_install(pkb_arena, tmp_path: Path):
    (tmp_path / "without" / "mcp").mkdir(parents=True)
    (tmp_path / "without" / "mcp" / "__init__.py").write_text("raise ImportError('not here')")
    done = pkb_arena("mcp", PYTHONPATH=f"{tmp_path / 'without'}{os.pathsep}{os.environ['PYTHONPATH']}")
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{sys.executable} -m pip install 'pkb-arena[mcp]'" in done.stderr  # another pip knows no pkb-arena


def test_the_names_of_other_kernels_are_no_players(paths: Paths):
    for name in ("baseline", "house", "agent:somebody", "file:mine"):
        with pytest.raises(UsageError, match=name):
            ArenaTools(Engine(paths), load_catalogue([]), Settings(), paths, Terms(player=name))


def test_agents_are_told_the_commands_beside_the_kernel(pkb_arena, tmp_path: Path):
    done = pkb_arena("new", "clip_grad_norm_ep", "--agents", "-o", "mine/fast.py")
    assert done.returncode == 0
    page = (tmp_path / "mine" / "AGENTS.md").read_text()
    assert "pkb-arena run 22 fast.py" in page
    assert "write to its arguments (but for dense, expert, which the card says to update)" in page
    assert "pkb-arena mcp" in page
    again = pkb_arena("new", "13", "--agents", "-o", "mine/other.py")
    assert (again.returncode, (tmp_path / "mine" / "other.py").exists()) == (2, False)
