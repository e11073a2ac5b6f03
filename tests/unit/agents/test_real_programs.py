"""Real agent programs play to a PASS: those that are installed, against a scripted model that uses their tools.

Claude Code, Codex, Gemini CLI and opencode from npm, mini-swe-agent and Aider from PyPI: put their folders on PATH.
"""

import json
import shutil
from typing import Any

import playing_agent
import pytest
from model_server import Line, ModelServer, Seen, call_events, events, protocol_of

from arena.paths import Paths
from arena.players.program.program import BUILT_IN, SPEAKS
from arena.players.trace import Ended, Judged, read_trace
from arena.settings import AgentSettings, ModelSettings, Settings, save_settings
from sandbox.protocol.verdict import Verdict

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
