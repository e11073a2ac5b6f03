"""Providers over real sockets: streams in four protocols, cut anywhere, and faults of a server."""

import asyncio
import email.utils
import json
import time
from typing import Any
from unittest.mock import Mock

import httpx
import msgspec
import pytest
from model_server import (
    KEY,
    PROTOCOLS,
    Line,
    ModelServer,
    Seen,
    broken_off,
    call_events,
    dripping,
    events,
    random_sizes,
    raw,
    status,
    streamed,
)
from waiting import PATIENCE_S

from arena.errors import PlayerFailed, UsageError
from arena.models import reading
from arena.models import stream as streaming
from arena.models.answer import ModelAnswer
from arena.models.budget import Budget, BudgetPool, Spent
from arena.models.conversation import AnyPiece, Conversation, Finish, Message, Retry, Text, Thought, Usage
from arena.models.keys import HIDDEN, Key
from arena.models.model import ModelClient, open_model
from arena.models.provider import MOST_TOKENS, count
from arena.models.providers import find_provider
from arena.settings import ModelSettings, Settings, WrongTable

ASK = Conversation("be brief", (Message("user", "a kernel, please"), Message("assistant", "?"), Message("user", "!")))
KERNEL = '```python\nimport torch\n\n\ndef solution(x):\n    return x  # × ü 😀 \\"quoted\\"\n```\n'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "FIRST_WAIT_S", 0.02)
    monkeypatch.setenv("TEST_KEY", KEY)


def player(
    server: ModelServer, protocol: str = "openai_chat", budget: Budget | None = None, **fields: object
) -> ModelClient:
    values = {"provider": protocol, "model": "m-1", "base_url": server.url, "key_env": "TEST_KEY"} | fields
    model = ModelSettings(**values)  # type: ignore[arg-type]
    return open_model("test", Settings(models={"test": model}), budget or Budget(model))


async def ask(player: ModelClient) -> tuple[ModelAnswer, list[AnyPiece]]:
    pieces: list[AnyPiece] = []
    async with player:
        answer = await player.answer(ASK, pieces.append)
    assert isinstance(pieces[-1], Finish)
    assert sum(isinstance(piece, Finish) for piece in pieces) == 1
    return answer, pieces


async def test_reasoning_is_no_part_of_the_answer(model_server: ModelServer) -> None:
    thought = b'data: {"choices": [{"delta": {"reasoning_content": "```python hmm"}}]}\n\n'
    model_server.replies = [raw(thought + events("openai_chat", KERNEL))]
    answer, pieces = await ask(player(model_server))
    assert Thought("```python hmm") in pieces
    assert answer.text == KERNEL


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_truncated_answer_is_continued(model_server: ModelServer, protocol: str) -> None:
    first, second = (streamed(KERNEL[start:end], finish="length") for start, end in ((0, 37), (37, 50)))
    model_server.replies = [first, second, streamed(KERNEL[50:])]
    answer, pieces = await ask(player(model_server, protocol))
    assert (answer.text, answer.continued, answer.outcome) == (KERNEL, 2, "kernel")
    assert "".join(piece.text for piece in pieces if isinstance(piece, Text)) == KERNEL
    for seen, text in zip(model_server.seen[1:], (KERNEL[:37], KERNEL[:50]), strict=True):
        assert text.rstrip() in json.loads(json.dumps(seen.prompt)).replace("\\n", "\n")
    assert answer.spent.written == 150  # all requests are paid for


async def test_truncated_answer_with_a_call_is_not_continued(model_server: ModelServer) -> None:
    data = call_events("openai_chat", "Let us see.", [("run", '{"source": "')])
    model_server.replies = [raw(data.replace(b'"finish_reason": "tool_calls"', b'"finish_reason": "length"'))]
    answer, _ = await ask(player(model_server))
    assert (answer.finish.reason, answer.continued, len(answer.calls)) == ("length", 0, 1)


async def test_an_answer_that_never_ends_is_given_up(model_server: ModelServer) -> None:
    model_server.replies = [streamed("```python\n", finish="length"), streamed("x = 1\n" * 5, finish="length")]
    answer, _ = await ask(player(model_server))
    assert (answer.outcome, answer.continued) == ("truncated", 4)
    assert len(model_server.seen) == 5


@pytest.mark.parametrize(
    ("after", "later"), [(350, b""), (200, b'data: {"choices": [{"delta": {"reasoning_content": "hmm"}}]}\n\n')]
)
async def test_broken_connection_continues_where_it_ended(model_server: ModelServer, after: int, later: bytes) -> None:
    model_server.replies = [broken_off(KERNEL, after, later), streamed(KERNEL)]
    answer, _ = await ask(player(model_server))
    assert answer.outcome == "kernel"
    assert "def solution(x)" in answer.source
    assert answer.continued == 1


async def test_connection_that_ends_before_word_is_tried_again(model_server: ModelServer) -> None:
    model_server.replies = [broken_off(KERNEL, 0), broken_off(KERNEL, 20), streamed(KERNEL)]
    answer, pieces = await ask(player(model_server))
    assert (answer.text, answer.continued) == (KERNEL, 0)
    assert [piece.attempt for piece in pieces if isinstance(piece, Retry)] == [1, 2]


@pytest.mark.parametrize("code", ["500 Oops", "502 Bad Gateway", "503 Busy", "529 Overloaded", "408 Slow"])
async def test_a_server_in_trouble_is_asked_again(model_server: ModelServer, code: str) -> None:
    model_server.replies = [status(code, "<html>"), status(code, '{"error": {"message": "later"}}'), streamed(KERNEL)]
    answer, pieces = await ask(player(model_server))
    assert answer.outcome == "kernel"
    assert [piece.reason for piece in pieces if isinstance(piece, Retry)] == [code, f"{code}: later"]


def test_retry_after_may_be_a_date() -> None:
    soon = email.utils.formatdate(time.time() + 1000, usegmt=True)
    for value, least, most in ((soon, 500, 1000), ("Thu, 01 Jan 1970 00:00:00 GMT", 0, 0)):
        found = streaming._retry_after(httpx.Response(429, headers={"retry-after": value}))
        assert found is not None
        assert least <= found <= most
    ago, then = (email.utils.formatdate(seconds, usegmt=True) for seconds in (1e9, 1e9 + 7))  # by the provider's clock
    assert streaming._retry_after(httpx.Response(429, headers={"retry-after": then, "date": ago})) == 7
    for value in ("", "-1", "soon"):
        assert streaming._retry_after(httpx.Response(429, headers={"retry-after": value})) is None


@pytest.mark.parametrize(
    ("reply", "said", "asked"),
    [
        (status("429 Too Many Requests", Retry_After="3600"), "3600 s", 1),
        (
            status("307 Temporary Redirect", Location="http://127.0.0.1:1/elsewhere"),
            "307",
            1,
        ),  # nor does it get the key
        (status("500 Oops"), r"500 Oops \(3 attempts\)", 3),
    ],
)
async def test_tries_are_counted(model_server: ModelServer, reply: Any, said: str, asked: int) -> None:
    model_server.replies = [reply]
    with pytest.raises(PlayerFailed, match=said):
        await ask(player(model_server, retries=2))
    assert len(model_server.seen) == asked


@pytest.mark.parametrize(
    ("code", "advice"), [("401 Unauthorized", "key"), ("404 Not Found", "name"), ("400 Bad Request", "extra")]
)
async def test_what_will_not_change_is_not_asked_again(model_server: ModelServer, code: str, advice: str) -> None:
    model_server.replies = [status(code, json.dumps({"error": {"message": f"no: {KEY}\x1b[31m"}}))]
    with pytest.raises(PlayerFailed, match="no: ") as caught:
        await ask(player(model_server))
    assert KEY not in caught.value.message
    assert HIDDEN in caught.value.message
    assert "\x1b" not in caught.value.message
    assert advice in caught.value.advice
    assert len(model_server.seen) == 1


async def test_slow_loris_is_given_up(model_server: ModelServer) -> None:
    model_server.replies = [dripping()]
    with pytest.raises(PlayerFailed, match="no data for"):
        await ask(player(model_server, stall_s=0.3, retries=0))
    assert await asyncio.to_thread(model_server.left.wait, PATIENCE_S)


async def test_comments_do_not_keep_silent_model_alive_forever(model_server: ModelServer) -> None:
    model_server.replies = [dripping(b"", b": still here\n\n")]
    with pytest.raises(PlayerFailed, match="no whole answer within 1 s"):
        await ask(player(model_server, stall_s=30, timeout_s=1.0))


async def test_an_error_inside_the_stream_is_told(model_server: ModelServer) -> None:
    error = (
        b'event: error\ndata: {"type": "error", "error": {"type": "invalid_request_error", "message": "too long"}}\n\n'
    )
    model_server.replies = [raw(error)]
    for protocol in PROTOCOLS:
        with pytest.raises(PlayerFailed, match="too long"):
            await ask(player(model_server, protocol))
    overloaded = error.replace(b"invalid_request_error", b"overloaded_error")
    model_server.replies = [raw(overloaded), streamed(KERNEL)]
    assert (await ask(player(model_server, "anthropic")))[0].outcome == "kernel"


async def test_another_kind_of_server_is_named(model_server: ModelServer) -> None:
    model_server.replies = [raw(b"<html>welcome</html>", kind="text/html")]
    with pytest.raises(PlayerFailed, match="text/html") as caught:
        await ask(player(model_server))
    assert "base_url" in caught.value.advice
    model_server.replies = [raw(b'{"error": "model not loaded"}', kind="application/json")]
    with pytest.raises(PlayerFailed, match="model not loaded"):
        await ask(player(model_server))


async def test_an_endless_answer_is_stopped(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ANSWER_CHARACTERS", 10_000)
    model_server.replies = [streamed("y" * 30_000)]
    answer, _ = await ask(player(model_server))
    assert answer.outcome == "truncated"
    model_server.replies = [raw(b"data: " + b"y" * 30_000)]  # an event without an end
    with pytest.raises(PlayerFailed, match="without an end"):
        await ask(player(model_server, retries=0))


async def test_cancelling_ends_the_request_at_once(model_server: ModelServer) -> None:
    text = events("openai_chat", KERNEL)[:300]
    model_server.replies = [dripping(text, b" ")]
    heard = asyncio.Event()

    def hear(piece: AnyPiece) -> None:
        heard.set()

    async with player(model_server) as writing:
        task = asyncio.create_task(writing.answer(ASK, hear))
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(model_server.left.wait, PATIENCE_S)
        assert writing.budget.spent.tokens > 0  # tokens used before the cancel are counted


async def test_late_usage_is_awaited_but_not_open_connections(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "AFTER_FINISH_S", 0.3)
    data = events("openai_chat", KERNEL, usage=(7, 8)).removesuffix(b"data: [DONE]\n\n")
    model_server.replies = [dripping(data, b" ")]
    answer, _ = await ask(player(model_server))
    assert answer.outcome == "kernel"
    assert (answer.spent.read, answer.spent.written) == (7, 8)


async def test_a_budget_stops_an_answer_in_its_middle(model_server: ModelServer) -> None:
    model = ModelSettings(provider="openai_chat", model="m", price_in=1.0, price_out=10.0)
    model_server.replies = [streamed("word " * 40_000, sizes=lambda: 4096)]
    budget = BudgetPool(0.01).open(model)
    answer, pieces = await ask(player(model_server, budget=budget))
    assert answer.finish.reason == "budget"
    assert 0.01 <= budget.spent.usd < 0.012
    assert budget.spent.estimated
    assert not any(isinstance(piece, Usage) for piece in pieces)
    again, _ = await ask(player(model_server, budget=budget))
    assert again.outcome == "budget"
    assert len(model_server.seen) == 1  # no further request is sent


async def test_an_answer_has_its_own_cost_alone(model_server: ModelServer) -> None:
    model = ModelSettings(provider="openai_chat", model="m", price_in=1.0, price_out=10.0)
    budget = BudgetPool(1.0).open(model)
    model_server.replies = [streamed(KERNEL, usage=(100_000, 5_000))]
    for _ in range(2):
        answer, _ = await ask(player(model_server, budget=budget))
        assert (answer.spent.read, answer.spent.written) == (100_000, 5_000)
        assert answer.spent.usd == pytest.approx(0.15)
    assert budget.spent.usd == pytest.approx(0.3)


async def test_use_before_retry_is_paid_for(model_server: ModelServer) -> None:
    thought = {"choices": [{"delta": {"reasoning_content": "hm " * 10_000}}]}

    def cut_off(line: Line, seen: Seen) -> None:
        line.head(Transfer_Encoding="chunked")
        line.chunk(b"data: " + json.dumps(thought).encode() + b"\n\n")

    model_server.replies = [cut_off, cut_off, streamed(KERNEL, usage=(7, 8))]
    answer, pieces = await ask(player(model_server))
    assert [piece.refused for piece in pieces if isinstance(piece, Retry)] == [False, False]
    assert (answer.spent.written, answer.spent.estimated) == (2 * 10_000 + 8, True)


@pytest.mark.parametrize("said", [True, -5, 10**30, 1e300, "7", None, [], {}])
def test_lie_about_usage_can_be_kept_in_journal(said: object) -> None:
    spent = Spent(read=count(said), written=count(said))
    assert msgspec.json.decode(msgspec.json.encode(spent), type=Spent) == spent
    assert 0 <= spent.tokens <= 2 * MOST_TOKENS


async def test_a_request_that_is_refused_costs_nothing(model_server: ModelServer) -> None:
    model_server.replies = [status("429 Too Many Requests"), status("402 Payment Required")]
    refused = player(model_server)
    with pytest.raises(PlayerFailed, match="402"):
        await ask(refused)
    assert refused.budget.spent == Spent()
    model_server.replies = [status("500 Oops"), streamed(KERNEL, usage=(7, 8))]
    assert (await ask(player(model_server)))[0].spent == Spent(7, 8)


async def test_a_request_that_reaches_nobody_costs_nothing(model_server: ModelServer) -> None:
    away = player(model_server, retries=1)
    model_server.close()
    nowhere = player(model_server, "gemini", model="m\x01")
    for asked, why in ((away, "2 attempts"), (nowhere, "no address")):
        with pytest.raises(PlayerFailed, match=why):
            await ask(asked)
        assert asked.budget.spent == Spent()


async def test_only_late_answers_cost(model_server: ModelServer) -> None:
    for late, said in (httpx.ConnectTimeout, "no connection in time"), (httpx.ReadTimeout, "no data for"):
        asked = player(model_server, retries=0)
        asked._stream._client = httpx.AsyncClient(transport=httpx.MockTransport(Mock(side_effect=late("late"))))
        with pytest.raises(PlayerFailed, match=said):
            await ask(asked)
        assert bool(asked.budget.spent.tokens) is (late is httpx.ReadTimeout)


async def test_key_that_server_echoes_is_not_passed_on(model_server: ModelServer) -> None:
    model_server.replies = [streamed(f"your key is {KEY}, yes {KEY[:20]} no", sizes=random_sizes(1))]
    answer, _ = await ask(player(model_server))
    assert answer.text == f"your key is {HIDDEN}, yes {KEY[:20]} no"


def test_reasoning_that_is_held_back_comes_at_end() -> None:
    answer = reading.Reading(find_provider("openai_chat"), Key(KEY))
    event = {"choices": [{"delta": {"reasoning": KEY[:5]}}]}
    assert answer.take("", json.dumps(event)) == []
    assert answer.held_back() == [Thought(KEY[:5])]


def test_a_table_that_cannot_be_used_is_named() -> None:
    wrong = {"models.mine": WrongTable("it has no provider", {})}
    with pytest.raises(UsageError, match="it has no provider, so this model cannot be used"):
        open_model("mine", Settings(wrong=wrong))


def test_an_address_with_a_password_is_refused(model_server: ModelServer) -> None:
    for address in (
        "https://me:secret@host/v1",
        "https://host/v1?key=secret",
        "ftp://host",
        "host:99999",
        "http://[::1",
        "htps://me:secret@host/v1",
        "https://me:se/secret@host",
        "htps://host/v1?key=secret",
    ):
        with pytest.raises(UsageError, match="base_url") as caught:
            open_model("test", Settings(models={"test": ModelSettings(provider="gemini", model="m", base_url=address)}))
        assert "secret" not in caught.value.message
