"""Differences between servers of one protocol: names of fields, parts in place of texts, answers without a stream."""

import json
from typing import Any

import pytest
from model_server import KEY, ModelServer, Reply, Seen, raw, status, streamed

from arena.errors import PlayerFailed
from arena.models import stream as streaming
from arena.models.answer import ModelAnswer
from arena.models.conversation import AnyPiece, Conversation, Message, Thought
from arena.models.model import open_model
from arena.settings import ModelSettings, Settings

ASK = Conversation("", (Message("user", "a kernel, please"),))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "FIRST_WAIT_S", 0.02)
    monkeypatch.setattr(streaming, "_LIMIT_NAMES", {})
    monkeypatch.setenv("TEST_KEY", KEY)


async def ask(server: ModelServer, **fields: Any) -> tuple[ModelAnswer, list[AnyPiece]]:
    values = {"provider": "openai_chat", "model": "m-1", "base_url": server.url, "key_env": "TEST_KEY"}
    model = ModelSettings(**(values | fields))
    pieces: list[AnyPiece] = []
    async with open_model("test", Settings(models={"test": model})) as client:
        return await client.answer(ASK, pieces.append), pieces


def whole(value: object) -> Reply:
    return status("200 OK", json.dumps(value))


def chunks(*values: object) -> Reply:
    return raw(b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values))


async def test_reasoning_that_used_up_the_limit_is_told(model_server: ModelServer) -> None:
    model_server.replies = [
        chunks(
            {"choices": [{"delta": {"reasoning_content": "well, " * 9}}]},
            {"choices": [{"delta": {}, "finish_reason": "length"}]},
        )
    ]
    answer, _ = await ask(model_server, max_tokens=64)
    assert answer.outcome == "truncated"
    assert answer.reason == "its reasoning used up max_tokens (64): raise it for this model"


async def test_reasoning_text_over_limit_is_told(model_server: ModelServer) -> None:
    model_server.replies = [streamed("<think>\nwell", finish="length")] * 9
    answer, _ = await ask(model_server, max_tokens=64)
    assert "used up max_tokens (64)" in answer.reason


async def test_content_may_be_a_list_of_parts(model_server: ModelServer) -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "so"}]},
        {"type": "thinking", "thinking": "what"},
        {"type": "text", "text": "he"},
        {"type": "text", "text": "llo"},
        {"type": "image_url"},
        "?",
    ]
    model_server.replies = [chunks({"choices": [{"delta": {"content": parts}, "finish_reason": "stop"}]})]
    answer, pieces = await ask(model_server)
    assert answer.text == "hello"
    assert [piece.text for piece in pieces if isinstance(piece, Thought)] == ["so", "what"]


REFUSED = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."


async def test_other_limit_name_is_tried_once_and_remembered(model_server: ModelServer) -> None:
    refused = status("400 Bad Request", json.dumps({"error": {"message": REFUSED}}))
    model_server.replies = [refused, streamed("hello"), streamed("again")]
    assert (await ask(model_server, retries=0))[0].text == "hello"
    assert (await ask(model_server, retries=0))[0].text == "again"
    fields = [
        [name for name in ("max_tokens", "max_completion_tokens") if name in seen.body] for seen in model_server.seen
    ]
    assert fields == [["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"]]
    model_server.replies = [refused] * 5
    with pytest.raises(PlayerFailed, match="Unsupported parameter"):
        await ask(model_server, retries=0)


async def test_limit_too_large_is_no_other_name(model_server: ModelServer) -> None:
    words = "max_tokens is too large: 32768. This model supports at most 16384 completion tokens"
    model_server.replies = [status("400 Bad Request", json.dumps({"error": {"message": words}}))] * 2
    with pytest.raises(PlayerFailed, match="too large"):
        await ask(model_server)
    assert len(model_server.seen) == 1


async def test_settings_can_leave_fields_out_of_a_request(model_server: ModelServer) -> None:
    model_server.replies = [streamed("hello")]
    await ask(model_server, omit=["stream_options", "max_tokens"])
    (seen,) = model_server.seen
    assert isinstance(seen, Seen)
    assert set(seen.body) == {"model", "messages", "stream"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"detail": [{"loc": ["body", "seed"], "msg": "not an integer", "type": "int"}]}, "body.seed: not an integer"),
        ({"detail": "no such model"}, "no such model"),
        ({"object": "error", "message": "too long"}, "too long"),
        ([{"error": {"message": "in a list"}}], "in a list"),
        ({"error": "plain"}, "plain"),
        ({"detail": [{"loc": None, "msg": 3}, 4]}, "422"),
        ([], "422"),
        ("text", "422"),
    ],
)
async def test_the_details_of_a_refusal_are_told(model_server: ModelServer, body: object, words: str) -> None:
    model_server.replies = [status("422 Unprocessable Entity", json.dumps(body))]
    with pytest.raises(PlayerFailed, match=words):
        await ask(model_server)


WHOLE = {
    "openai_chat": {
        "choices": [{"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    },
    "openai_responses": {
        "object": "response",
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "hello"}]}],
        "usage": {"input_tokens": 7, "output_tokens": 3},
    },
    "anthropic": {
        "type": "message",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 7, "output_tokens": 3},
    },
    "gemini": {
        "candidates": [{"content": {"parts": [{"text": "hello"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3},
    },
}


@pytest.mark.parametrize("protocol", WHOLE)
async def test_a_whole_answer_without_a_stream_is_one(model_server: ModelServer, protocol: str) -> None:
    model_server.replies = [whole(WHOLE[protocol])]
    answer, _ = await ask(model_server, provider=protocol)
    assert (answer.text, answer.outcome) == ("hello", "prose")
    assert (answer.spent.read, answer.spent.written) == (7, 3)


@pytest.mark.parametrize("value", [{}, {"ok": True}, [], "text"])
async def test_some_other_json_is_no_answer(model_server: ModelServer, value: object) -> None:
    model_server.replies = [whole(value)]
    with pytest.raises(PlayerFailed, match="it answered with application/json, not a stream"):
        await ask(model_server)


async def test_an_account_without_credit_is_not_asked_again(model_server: ModelServer) -> None:
    body = {"error": {"message": "You exceeded your quota", "type": "insufficient_quota", "code": "insufficient_quota"}}
    model_server.replies = [status("429 Too Many Requests", json.dumps(body))]
    with pytest.raises(PlayerFailed, match="You exceeded your quota") as raised:
        await ask(model_server)
    assert raised.value.advice == "the account has no credit"
    assert len(model_server.seen) == 1
