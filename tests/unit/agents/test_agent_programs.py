"""Agent programs as players: scripted ones in their jail, and real ones that are installed, to a PASS."""

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import playing_agent
import pytest
from model_server import KEY, Line, ModelServer, Seen, call_events, events, protocol_of, streamed
from scripted_agents import CAPS, Playing, UntilGone
from waiting import PATIENCE_S

from arena.errors import MachineError, PlayerFailed, RunRefused, UsageError
from arena.paths import Paths
from arena.players.program import jailed, player, watch
from arena.players.program.jailed import program_findings
from arena.players.program.program import BUILT_IN, SPEAKS, find_program, installation
from arena.players.program.watch import ProgramEnd, Watch
from arena.players.trace import Ended, Judged, Wrote, read_trace
from arena.settings import AgentSettings, ModelSettings, Settings, save_settings
from arena.workspace.kernels import Workspace
from problems.catalogue import load_catalogue
from sandbox.jail.choice import Jail, choose
from sandbox.jail.memory import AgentUsage
from sandbox.jail.profiles import NONE, SOURCE_ROOT, agent_interpreter
from sandbox.protocol.verdict import Verdict

if importlib.util.find_spec("mcp") is None and not os.environ.get("CI"):
    pytest.skip("the MCP SDK is not installed: pip install 'pkb-arena[mcp]'", allow_module_level=True)

CATALOGUE = load_catalogue()
PROBLEM = CATALOGUE.find("1")


def said(played: Any, paths: Paths) -> dict[str, Any]:
    """The report in the program's first line."""
    events = read_trace(paths.traces / f"{played.trace_id}.jsonl")
    text = "".join(event.text for event in events if isinstance(event, Wrote))
    report: dict[str, Any] = json.loads(text.splitlines()[0])
    return report


@pytest.mark.slow
@pytest.mark.usefixtures("jailed_agents")
async def test_keys_judge_files_and_foreign_kernels_are_unreachable(
    playing: Playing, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    secret = "sk-of-somebody-else-0123456789"
    monkeypatch.setenv("OTHER_API_KEY", secret)
    theirs = Workspace(paths.workspace).create(PROBLEM, "their = 'kernel'", "model:other")
    save_settings(Settings(theme="light"), paths)
    key_file = tmp_path / "key"
    key_file.write_text(secret)
    house = next(problem.folder / "house.py" for problem in CATALOGUE.problems if problem.house_source)
    judge = SOURCE_ROOT / "sandbox" / "referee" / "evaluation.py"
    files = [theirs, paths.settings_file, key_file, house, judge, PROBLEM.folder / "inputs.py"]
    folders = [paths.data, paths.workspace, SOURCE_ROOT / "sandbox", SOURCE_ROOT / "problems"]
    calls = [
        ("house", {}),
        ("list", {}),
        ("show", {"problem": 2}),
        ("history", {"player": "model:other"}),
        ("run", {"source": "pass", "path": str(theirs)}),
        ("run", {"problem": 2, "source": "pass"}),
        ("kit_docs", {"page": str(key_file)}),
        ("new", {"template": str(theirs)}),
    ]
    with socket.create_server(("127.0.0.1", 0)) as server:
        things = {
            "terces": secret[::-1],  # reversed, because the program's own variables contain this text
            "files": list(map(str, files)),
            "folders": list(map(str, folders)),
            "port": server.getsockname()[1],
            "calls": calls,
        }
        outside = playing_agent.look_around(things)  # outside the jail, all of it is found
        played = await playing(LOOK_AROUND=json.dumps(things))
    places = {str(place) for place, _ in outside}
    assert {*map(str, files), str(paths.data), "port", "own"} <= places
    report = said(played, paths)
    assert report["found"] == []
    own = [path for path in report["home"] if "pkb-agent-" in path]
    assert set(report["home"]) <= {".gemini", tmp_path.parts[2], *own}
    assert report["task"]
    for (name, _), (error, text) in zip(calls, report["refused"], strict=True):
        assert error, (name, text)
        assert secret not in text
        assert "their" not in text
    assert played.reason == "done"
    assert [attempt.passed for attempt in played.attempts] == [False, True]
    assert secret not in (paths.traces / f"{played.trace_id}.jsonl").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("jailed_agents")
async def test_program_reaches_only_its_model_within_its_money(
    playing: Playing, paths: Paths, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TEST_KEY", KEY)
    model = ModelSettings(
        provider="anthropic", model="cheap", base_url=model_server.url, key_env="TEST_KEY", price_in=1.0, price_out=1.0
    )
    model_server.replies = [streamed("hello")] * 3
    paths_asked = ["/v1/files", "/v1/messages", "/v1/messages"]
    played = await playing(model, 1.4e-4, ASK=json.dumps(paths_asked))
    answers = said(played, paths)["answers"]
    assert [status for status, _ in answers] == [403, 200, 403]
    assert "hello" in answers[1][1]
    assert "budget" in answers[2][1]
    (seen,) = model_server.seen
    assert seen.body["model"] == "cheap"
    assert KEY in seen.headers.values()
    assert (played.spent.read, played.spent.written, played.reason) == (100, 50, "budget")
    assert KEY not in (paths.traces / f"{played.trace_id}.jsonl").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("jailed_agents")
async def test_endless_program_is_ended_with_its_processes(playing: Playing, script: Path, until_gone: UntilGone):
    played = await playing(seconds=2, WAIT="yes")
    assert (played.reason, played.attempts) == ("time", [])
    await until_gone(script)


@pytest.mark.usefixtures("jailed_agents")
async def test_a_harness_that_fails_ends_the_program(playing: Playing, script: Path, until_gone: UntilGone):
    with pytest.raises(RunRefused, match="sizes do not fit"):
        await playing(KERNELS=json.dumps(["refuse", "pass"]), STAY="yes")
    await until_gone(script)


@pytest.mark.usefixtures("jailed_agents")
def test_timers_fire_and_names_resolve_in_its_jail(tmp_path: Path):
    """Bun ends if it gets no timerfd. Worlds get none: see the self-test of the jail."""
    text = """import ctypes, os, signal, socket, subprocess
assert socket.gethostbyname("localhost") == socket.gethostbyname(socket.gethostname())
assert ctypes.CDLL(None).timerfd_create(1, 0) >= 0
assert subprocess.run(["timeout", "0.1", "sleep", "60"]).returncode == 124
os.openpty()
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()"""
    jail = choose()
    argv = [str(agent_interpreter()), "-c", text]
    filter_fd = jail.filter_fd(CAPS)
    with contextlib.closing(jail.profile.wrap(argv, tmp_path, {}, filter_fd=filter_fd, caps=CAPS)) as wrapped:
        started = {"env": wrapped.env, "pass_fds": wrapped.fds, "capture_output": True}
        done = subprocess.run(wrapped.argv, check=False, timeout=PATIENCE_S, **started)
    assert done.returncode == 128 + signal.SIGALRM, done.stderr


async def test_without_jail_of_its_own_no_program_starts(
    playing: Playing, paths: Paths, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jailed, "choose", lambda: Jail(NONE, None, {}))
    with pytest.raises(MachineError, match="needs a jail"):
        await playing()


def test_a_word_names_a_program_or_a_model(script: Path):
    models = {
        "opus": ModelSettings(provider="anthropic", model="m"),
        "codex": ModelSettings(provider="gemini", model="m"),
    }
    settings = Settings(models=models, agents={"mine": AgentSettings(command=[str(script), "--fast"])})
    for model in ("opus", "codex", "anthropic:x", "openai_chat:org/model", "nobody"):
        assert find_program(model, settings) is None, model
    for word in ("mine", f"{script} --fast"):
        program = find_program(word, settings)
        assert program.command == ("{python}", str(script.resolve()), "--fast")
        assert program.model is None


WITHOUT_MCP = """import subprocess
open("kernel.py", "w").write("wrong\\n")
done = subprocess.run("$PKB_ARENA_RUN kernel.py", shell=True, capture_output=True, text=True)
assert (done.returncode, "WRONG_RESULT" in done.stdout) == (1, True), done
open("kernel.py", "w").write("pass\\n")
{rest}
"""


@pytest.mark.usefixtures("jailed_agents")
@pytest.mark.parametrize("rest", ["", 'assert subprocess.run("$PKB_ARENA_RUN", shell=True).returncode == 0'])
async def test_program_without_mcp_submits_files(playing: Playing, script: Path, rest: str):
    """A kernel.py that it leaves is judged, unless it was submitted already."""
    script.write_text(WITHOUT_MCP.format(rest=rest))
    played = await playing()
    assert [attempt.passed for attempt in played.attempts] == [False, True]
    assert (played.best, played.reason) == ("pass\n", "done")


async def test_ended_programs_words_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch, "ERRORS_BYTES", 8)
    script, pipe, heard = "echo out; printf abcdefghij >&2; exit 3", asyncio.subprocess.PIPE, list[str]()
    process = await asyncio.create_subprocess_exec("sh", "-c", script, stdout=pipe, stderr=pipe)
    with contextlib.closing(AgentUsage(NONE, tmp_path, CAPS)) as usage:
        ended = await Watch(PATIENCE_S, heard.append, str).to_its_end(process, usage)
    assert ended == ProgramEnd(3, "abcdghij", "out")
    assert "".join(heard) == "out\n\n[stderr]\nabcdghij\n"
    names = ["exit status 3", "ended by SIGSEGV (signal 11)", "ended by SIGKILL (signal 9)", "exit status 255"]
    assert [watch.how_it_ended(code, "") for code in (3, 139, -9, 255)] == names


@pytest.mark.usefixtures("jailed_agents")
async def test_reason_has_first_error_and_last_lines(playing: Playing, paths: Paths, script: Path):
    script.write_text(
        "import sys\nprint('starts up', file=sys.stderr)\nprint('Error: the package is missing', file=sys.stderr)\n"
        "for step in range(40): print('    at step', step, 'of the loader', file=sys.stderr)\nsys.exit(3)"
    )
    words = "exit status 3: Error: the package is missing … at step 38 of the loader … at step 39 of the loader"
    with pytest.raises(PlayerFailed, match=words):
        await playing()
    (trace,) = paths.traces.glob("*.jsonl")
    assert all(f"at step {step} of the loader" in trace.read_text() for step in range(40))


@pytest.mark.usefixtures("jailed_agents")
async def test_calls_cannot_fill_the_disk_with_a_trace(
    playing: Playing, paths: Paths, script: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(player, "MOST_CALLS", 4)
    text, before = script.read_text(), "    first, second ="
    script.write_text(text.replace(before, f'    [tools.call("kit_docs", page="x" * 900_000) for _ in "12"]\n{before}'))
    played = await playing()
    assert len(played.attempts) == 2
    assert (paths.traces / f"{played.trace_id}.jsonl").stat().st_size < 1 << 20
    script.write_text(text.replace(before, f'    [tools.call("history") for _ in "1234"]\n{before}'))
    with pytest.raises(PlayerFailed, match="No calls are left"):
        await playing()


def test_program_may_read_its_whole_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also under a prefix of one's own, where npm puts packages, and where a virtual environment is."""
    modules, environment, sibling = tmp_path / "npm/lib/node_modules", tmp_path / "venv", tmp_path / "own"
    texts = {
        modules / "@me/agent/bin/agent.js": "#!/usr/bin/env -S A=b node --quiet\n",
        environment / "bin/agent": f"#!{environment}/bin/python3\n",
        environment / "pyvenv.cfg": "",
        sibling / "bin/agent.py": "",
        sibling / "lib/real.py": "",
        sibling / "dist/real.js": "",
        sibling / "secrets": "",
        sibling / "tools/agent.py": "",
        tmp_path / "nodes/node": "",
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (environment / "bin/python3").symlink_to(agent_interpreter())
    monkeypatch.setenv("PATH", str(tmp_path / "nodes"), prepend=os.pathsep)
    script = modules / "@me/agent/bin/agent.js"
    node = tmp_path / "nodes/node"
    assert installation(script) == (["/usr/bin/env", "A=b", str(node), "--quiet", str(script)], [script, modules, node])
    start, needed = installation(environment / "bin/agent")
    assert start == [f"{environment}/bin/python3", f"{environment}/bin/agent"]
    assert environment in needed
    assert installation(sibling / "bin/agent.py")[1] == [sibling / "bin/agent.py", sibling / "lib", sibling / "dist"]
    assert installation(sibling / "tools/agent.py")[1] == [sibling / "tools/agent.py"]


@pytest.mark.usefixtures("jailed_agents")
def test_doctor_starts_known_programs_in_their_jail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, text in (("claude", "echo 1.2.3"), ("gemini", "echo Error: no; exit 3"), ("codex", "kill -SEGV $$")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = {finding.name: finding for finding in program_findings(Settings())}
    assert (found["agent:claude-code"].state, found["agent:claude-code"].found) == ("ok", "1.2.3 starts in its jail")
    assert found["agent:gemini-cli"].found == "does not start in its jail: exit status 3: Error: no"
    assert found["agent:codex"].found == "does not start in its jail: ended by SIGSEGV (signal 11)"
    monkeypatch.setattr("arena.players.program.jailed.VERSION_S", 1.0)
    (tmp_path / "claude").write_text("#!/bin/sh\nsleep 60\n")
    found = {finding.name: finding for finding in program_findings(Settings())}
    assert found["agent:claude-code"].found == "does not start in its jail: no end within 1 s"


@pytest.mark.parametrize(
    ("word", "agents", "said"),
    [
        ("claude-code", {}, "has no model"),
        ("opencode", {}, "has no model"),
        ("codex", {"codex": AgentSettings(model="openai_chat:m")}, "speaks openai_responses, .* provider openai_chat"),
        ("/no/such/program", {}, "no program"),
        ("./unclosed 'quotation", {}, "no command"),
        ("mine", {"mine": AgentSettings()}, "has no command"),
        ("mine", {"mine": AgentSettings(command=["sh"], model="nobody")}, "no model 'nobody'"),
        ("mine", {"mine": AgentSettings(command=["sh"], readable=["/no/such/folder"])}, "/no/such/folder"),
    ],
)
def test_what_cannot_be_started_says_why(word: str, agents: dict[str, AgentSettings], said: str):
    with pytest.raises(UsageError, match=said):
        find_program(word, Settings(agents=agents))


PREFIXES = {"gemini": "/v1beta", "anthropic": ""}
SUBMIT = "cat > kernel.py <<'EOF'\n{}EOF\n$PKB_ARENA_RUN kernel.py"
FINISH = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""How mini-swe-agent is told that its task is done."""


def next_kernel(seen: Seen) -> str:
    """A wrong kernel first, the correct one after the verdict, and nothing after a PASS."""
    if "Verdict: PASS" in seen.prompt:
        return ""
    return playing_agent.RIGHT if "Verdict: WRONG_RESULT" in seen.prompt else playing_agent.WRONG


def names_of(tools: Any) -> list[str]:
    """The names of the tools in a request of any protocol."""
    if isinstance(tools, list):
        return [name for tool in tools for name in names_of(tool)]
    if not isinstance(tools, dict):
        return []
    inner = [name for each in ("function", "functionDeclarations", "tools") for name in names_of(tools.get(each))]
    prefix = f"{tools['name']}." if tools.get("type") == "namespace" else ""
    return [prefix + name for name in inner] or ([tools["name"]] if isinstance(tools.get("name"), str) else [])


def play(line: Line, seen: Seen) -> None:
    """Answers as a model: calls the arena's tool, or a shell, or writes the file as text."""
    kernel, names, protocol = next_kernel(seen), names_of(seen.body.get("tools")), protocol_of(seen)
    arena = next((name for name in names if "arena" in name and name.endswith("run")), None)
    shell = next((name for name in names if name == "bash"), None)
    data = events(protocol, "Done.")
    if arena is not None and not kernel:
        pass
    elif arena is not None:
        data = call_events(protocol, "I try this.", [(arena, json.dumps({"source": kernel}))], cut=40)
    elif shell is not None and "PKB_ARENA_RUN" in seen.prompt:
        command = SUBMIT.format(kernel) if kernel else FINISH
        data = call_events(protocol, "I try this.", [(shell, json.dumps({"command": command}))], cut=40)
    elif shell is not None:
        data = call_events(protocol, "I read the task.", [(shell, json.dumps({"command": "cat $PKB_ARENA_TASK"}))])
    elif not names and kernel:
        data = events(protocol, f"kernel.py\n```python\n{kernel}```\n")
    data = data.replace(b'"id-', f'"id-{len(seen.prompt)}-'.encode())  # programs expect a new id for each call
    data = data.replace(
        b'"name": "mcp__arena.', b'"namespace": "mcp__arena", "name": "'
    )  # as OpenAI names Codex's tools
    if (protocol == "gemini" and "alt=sse" not in seen.path) or (protocol != "gemini" and not seen.body.get("stream")):
        _answer_whole(line, protocol, data)
        return
    line.head(Transfer_Encoding="chunked")
    line.chunk(data)
    line.end()


def _answer_whole(line: Line, protocol: str, data: bytes) -> None:
    """Answers a request that asked for no stream. Only what mini-swe-agent and Aider ask is known: chat completions."""
    assert protocol == "openai_chat"
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: list[dict[str, Any]] = []
    for text in data.decode().splitlines():
        if text.startswith("data: {"):
            for choice in json.loads(text[6:])["choices"]:
                message["content"] += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls", []):
                    if "id" in call:
                        calls.append(call)
                    else:
                        calls[-1]["function"]["arguments"] += call["function"]["arguments"]
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
    body = json.dumps(
        {"id": "1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
    ).encode()
    line.head(kind="application/json", Content_Length=str(len(body)))
    line._send(body)


@pytest.mark.slow
@pytest.mark.usefixtures("jailed_agents", "small_budget")
@pytest.mark.parametrize("name", BUILT_IN)
def test_installed_program_plays_to_a_pass(pkb_arena, name: str, paths: Paths, model_server: ModelServer):
    if shutil.which(BUILT_IN[name].command[0]) is None:
        pytest.skip(f"{name} is not installed")
    provider = SPEAKS.get(name, "openai_chat")
    model_server.replies = [play]
    base_url = model_server.url + PREFIXES.get(provider, "/v1")
    model = ModelSettings(provider=provider, model="test-model", base_url=base_url, price_in=1.0, price_out=1.0)
    save_settings(Settings(models={"m": model}, agents={name: AgentSettings(model="m", minutes=5)}), paths)
    arguments = ("--problems", "1", "--preset", "tiny", "--world", "2", "--device", "cpu", "--dtype", "float32")
    done = pkb_arena("sweep", "--players", f"agent:{name}", *arguments, "--one-size", "--rounds", "0", "--steps", "3")
    assert done.returncode == 0, done.stderr
    (trace,) = paths.traces.glob("*.jsonl")
    found = list(read_trace(trace))
    assert [event.report.verdict for event in found if isinstance(event, Judged)] == [
        Verdict.WRONG_RESULT,
        Verdict.PASS,
    ]
    assert isinstance(found[-1], Ended)
    assert found[-1].reason == "done"
    assert done.returncode == 0, done.stderr
    assert model_server.seen
