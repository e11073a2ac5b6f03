"""Tool calls over real sockets in four protocols: cut anywhere, malformed, unknown."""

import json
from typing import Any

import pytest
from model_server import PROTOCOLS, ModelServer, calling, random_sizes, raw, status, streamed
from scripted_agents import Bench, MakeAgent, compiling, fenced, results, run, source, told

from arena.models.conversation import Draft
from arena.players.trace import Called, Drafted, Returned, Wrote


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_kernel_can_be_watched_while_call_is_written(
    model_server: ModelServer, made: MakeAgent, protocol: str
) -> None:
    model_server.replies = [
        calling(run("oops"), ("kit_docs", '{"page": "symm"}'), text="Let us see.", sizes=random_sizes(3)),
        streamed(fenced("1.5")),
    ]
    agent = made(protocol, steps=2)
    await agent.play()
    events = told(agent)
    drafted = [at for at, event in enumerate(events) if isinstance(event, Drafted)]
    assert "".join(event.text for event in events if isinstance(event, Drafted)) == source("oops")
    kinds = [type(event) for event in events]
    assert kinds.index(Wrote) < drafted[0]
    assert drafted[-1] < kinds.index(Called)


@pytest.mark.parametrize("arguments", [r'{"source": "a\u12', '{"source": 7}', '{"source": "a\n"}', "x" * 100, ""])
def test_a_draft_of_something_else_is_none(arguments: str) -> None:
    assert Draft().feed(arguments) in ("", "a")


def test_a_draft_comes_to_the_letter() -> None:
    text = 'x = "\\\\ 😀 ü"\n\t# \x00 end'
    for dump in (json.dumps({"a": 1, "source": text}), json.dumps({"source": text}, ensure_ascii=False)):
        draft = Draft()
        assert "".join(draft.feed(letter) for letter in dump) == text


@pytest.mark.parametrize("protocol", ["anthropic", "gemini"])
async def test_a_call_goes_back_with_its_seal(model_server: ModelServer, made: MakeAgent, protocol: str) -> None:
    model_server.replies = [calling(run("oops"), text="Let us see."), streamed(fenced("1.5"))]
    await made(protocol, steps=2).play()
    first, second = (seen.body for seen in model_server.seen)
    if protocol == "anthropic":
        assert [tool["name"] for tool in first["tools"]] == ["compile", "run", "kit_docs"]
        asked, answered = second["messages"][-2:]
        thought, said, call = asked["content"]
        assert thought == {"type": "thinking", "thinking": "hm", "signature": "sealed"}
        assert (said["text"], call["input"]) == ("Let us see.", {"source": source("oops")})
        assert answered["content"][0]["tool_use_id"] == call["id"] == "id-2"
    else:
        asked, answered = second["contents"][-2:]
        assert asked["parts"][1]["thoughtSignature"] == "sealed"
        assert answered["parts"][0]["functionResponse"]["name"] == "run"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("run", '{"source": "def solu'), "no JSON object with `source`"),
        (("run", '["x"]'), "no JSON object with `source`"),
        (("run", "{}"), "no arguments arrived; it needs `source`"),
        (("compile", '{"source": 17}'), "no JSON object with `source`"),
        (("run", '{"source": "  "}'), "is empty"),
        (("kit_docs", '{"page": "../../SECRET"}'), "there is no page '../../SECRET'"),
        (("rm_rf", '{"source": "x"}'), "there is no such tool; choose from compile, run, kit_docs"),
        (("", "{}"), "there is no such tool"),
    ],
)
async def test_nonsense_call_is_answered_with_error(
    model_server: ModelServer, made: MakeAgent, bench: Bench, protocol: str, call: tuple[str, str], words: str
) -> None:
    model_server.replies = [calling(call), streamed(fenced("1.5"))]
    agent = made(protocol, steps=1)
    assert await agent.play() is not None
    assert (bench.judged, bench.built) == ([source("1.5")], [])
    (result,) = results(model_server.seen[1])
    assert words in result
    assert [(event.error, event.text) for event in told(agent) if isinstance(event, Returned)] == [(True, result)]


async def test_servers_with_own_dialects_are_understood(
    model_server: ModelServer, made: MakeAgent, bench: Bench
) -> None:
    def delta(*calls: dict[str, Any], **old: object) -> bytes:
        return b"data: " + json.dumps({"choices": [{"delta": {"tool_calls": calls} | old}]}).encode() + b"\n\n"

    end = b'data: {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}\n\ndata: [DONE]\n\n'
    same_index = [
        {"index": 0, "id": f"id-{n}", "function": {"name": "compile", "arguments": compiling(word)[1]}}
        for n, word in enumerate(("1.1", "1.2"))
    ]
    pieces = [{"arguments": piece} for piece in compiling("1.3")[1].partition("source")]
    whole = {"content": None, "function_call": {"name": "compile", "arguments": compiling("1.4")[1]}}
    model_server.replies = [
        raw(delta(*same_index) + end),
        raw(delta({"function": {"name": "kit_docs", "arguments": {"page": "cpp"}}}) + end),
        raw(b'data: {"choices": [{"delta": {"tool_calls": [7, {"function": null}, {"index": "x"}]}}]}\n\n' + end),
        raw(b"".join(delta(function_call=part) for part in ({"name": "compile"}, *pieces)) + end),
        status("200 OK", json.dumps({"choices": [{"message": whole, "finish_reason": "function_call"}]})),
        streamed(fenced("1.5")),
    ]
    agent = made(steps=1)
    assert await agent.play() is not None
    assert bench.built == [source(word) for word in ("1.1", "1.2", "1.3", "1.4")]
    events = [event for event in told(agent) if isinstance(event, Returned)]
    assert "cpp.compile" in events[2].text
    assert [event.error for event in events] == [False, False, False, True, False, False]
