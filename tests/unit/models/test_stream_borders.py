"""Streams of all providers, cut and damaged anywhere: the same answer, or a failed one; never part of a kernel."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterable
from types import SimpleNamespace
from typing import Any

import httpx
import model_server
import msgspec
import pytest
from fixed_examples import examples
from hypothesis import given
from hypothesis import strategies as st
from model_server import KEY, PROTOCOLS, call_events

from arena.errors import PlayerFailed
from arena.models.answer import ModelAnswer
from arena.models.budget import Budget
from arena.models.conversation import AnyPiece, Conversation, Finish, Message
from arena.models.keys import Key
from arena.models.model import ModelClient
from arena.settings import ModelSettings

ASK = Conversation("be brief", (Message("user", "a kernel, please"),))
KERNEL = '```python\ndef solution(x):\n    """😀 × ü \u2028"""\n    return x\n```\n'
TEXTS = st.text(st.sampled_from('ab"\\\n\r\t ü×\x85\u2028\ufeff\U0001f600\U0010ffff'), min_size=1, max_size=60)
SIZES = st.lists(st.integers(1, 50), min_size=1, max_size=6)
HALVES = {"first": "\ud83d", "second": "\ude00", "both in the wrong order": "\ude00\ud83d"}
protocols = pytest.mark.parametrize("protocol", PROTOCOLS)


class Chunks(httpx.AsyncByteStream):
    """A response's body."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cuts the data into pieces of these sizes in turn."""
    at, found = 0, []
    for size in itertools.cycle(sizes):
        if at >= len(data):
            return found
        found.append(data[at : at + size])
        at += size
    return found


def ask(protocol: str, *chunks: bytes) -> tuple[ModelAnswer, list[AnyPiece]]:
    """Returns the answer of a provider that sends these bytes to every request, and its pieces."""

    def reply(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Chunks(chunks))

    async def answer() -> tuple[ModelAnswer, list[AnyPiece]]:
        model = ModelSettings(provider=protocol, model="m", base_url="http://127.0.0.1", retries=0)
        pieces: list[AnyPiece] = []
        player = ModelClient("m", model, Key(KEY), Budget(model))
        player._stream._client = httpx.AsyncClient(transport=httpx.MockTransport(reply))
        async with player:
            return await player.answer(ASK, pieces.append), pieces

    answered, pieces = asyncio.run(answer())
    assert [isinstance(piece, Finish) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    for piece in pieces:
        msgspec.json.encode(piece)  # a trace can store it
    return answered, pieces


def in_units(text: str) -> str:
    """Returns the text with characters beyond U+FFFF split into their two UTF-16 halves."""
    units = text.encode("utf-16-le")
    return "".join(chr(int.from_bytes(units[at : at + 2], "little")) for at in range(0, len(units), 2))


def events(protocol: str, text: str, piece: int, finish: str = "stop") -> bytes:
    """Returns the events of an answer, each with `piece` UTF-16 units of the text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_server, "PIECE", piece)
        return model_server.events(protocol, in_units(text), finish)


@protocols
@examples(40)
@given(TEXTS, SIZES, st.integers(1, 50), st.booleans(), st.booleans())
def test_answer_is_same_wherever_chunks_and_events_end(
    protocol: str, text: str, sizes: list[int], piece: int, escaped: bool, returns: bool
) -> None:
    """Also inside of characters, if JSON does not escape them, and of line ends of two characters."""
    unescaped = SimpleNamespace(dumps=lambda value: msgspec.json.encode(value).decode())
    with pytest.MonkeyPatch.context() as patch:
        if not escaped:
            patch.setattr(model_server, "json", unescaped)
        data = events(protocol, text, piece) if escaped else model_server.events(protocol, text)
    data = data.replace(b"\n", b"\r\n") if returns else data
    whole, pieces = ask(protocol, data)
    assert (whole.text, whole.finish) == (text, Finish("stop"))
    assert ask(protocol, *cut(data, sizes)) == (whole, pieces)


@protocols
@examples(25)
@given(TEXTS, TEXTS, SIZES, st.integers(1, 9))
def test_calls_are_the_same_wherever_they_are_cut(
    protocol: str, text: str, source: str, sizes: list[int], piece: int
) -> None:
    arguments = json.dumps({"source": source}, ensure_ascii=False)
    data = call_events(protocol, text, [("run", in_units(arguments))], piece)
    whole, pieces = ask(protocol, data)
    (call,) = whole.calls
    assert (whole.text, call.values) == (text, {"source": source})
    assert ask(protocol, *cut(data, sizes)) == (whole, pieces)


@protocols
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("place", ["text", "call"])
def test_half_character_without_other_fails_answer(protocol: str, half: str, place: str) -> None:
    broken = KERNEL.replace("😀", HALVES[half])
    arguments = json.dumps({"source": broken}, ensure_ascii=False)
    called = call_events(protocol, KERNEL, [("run", arguments)], 1)
    answer, _ = ask(protocol, model_server.events(protocol, broken) if place == "text" else called)
    if place == "call" and protocol == "gemini":  # its calls are whole objects; this one has lost its arguments
        assert [call.values for call in answer.calls] == [{}]
        return
    assert (answer.outcome, answer.source, answer.calls) == ("unreadable", "", ())
    assert answer.reason


@protocols
def test_last_half_fails_whole_answers_only(protocol: str) -> None:
    stopped, _ = ask(protocol, model_server.events(protocol, "x = 1  # \ud83d"))
    assert stopped.outcome == "unreadable"
    limited, _ = ask(protocol, model_server.events(protocol, "x = 1  # \ud83d", "length"))
    assert (limited.outcome, limited.continued) == ("truncated", 4)


GARBAGE = (b"17", b"[]", b'"text"', b"{", b'{"delta": "\\ud8', b"<html>", b"\xff", b"[" * 20_000)


@protocols
@examples(30)
@given(st.data())
def test_event_that_cannot_be_read_never_shortens_kernel(protocol: str, data: st.DataObject) -> None:
    told = events(protocol, KERNEL, 7).split(b"\n\n")
    at = data.draw(st.integers(0, len(told) - 2))
    told[at] = b"data: " + data.draw(st.sampled_from(GARBAGE))
    try:
        answer, _ = ask(protocol, b"\n\n".join(told))
    except PlayerFailed:
        return
    assert (answer.text, answer.outcome) == (KERNEL, "kernel") or (answer.source, answer.outcome) == ("", "unreadable")


LEAVES = st.sampled_from(
    [
        None,
        True,
        -1,
        2,
        2**70,
        1e300,
        "",
        "\ud83d",
        "\ude00",
        "😀",
        "```",
        "error",
        "tool_use",
        "reasoning",
        "function_call",
    ]
)
VALUES: st.SearchStrategy[Any] = st.one_of(
    LEAVES,
    st.lists(LEAVES, max_size=2),
    st.dictionaries(st.sampled_from(["type", "text", "error"]), LEAVES, max_size=2),
)


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Appends (container, key) of everything inside a value to `found`, and returns it."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        found.append((value, key))
        places(value[key], found)
    return found


@protocols
@examples(100)
@given(st.data())
def test_any_provider_values_give_answer_or_failure(protocol: str, data: st.DataObject) -> None:
    told = call_events(protocol, KERNEL, [("run", '{"source": "x"}')], 9) + events(protocol, KERNEL, 20)
    sent = [json.loads(line[6:]) for line in told.splitlines() if line.startswith(b"data: {")]
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(places(sent, [])))
        container[key] = data.draw(VALUES)
    try:
        ask(protocol, *(b"data: " + json.dumps(value).encode() + b"\n\n" for value in sent))
    except PlayerFailed as error:
        error.message.encode()
