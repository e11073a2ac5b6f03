"""Anthropic's messages."""

from typing import Any

from arena.players.player import AnyPiece, Conversation, Finish, Text, Thought, Usage
from arena.players.provider import ErrorEvent, Reader, Request, count, decode, error_of, object_of, text_of
from arena.settings import ModelSettings

_VERSION = "2023-06-01"
_REASONS = {"max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "refusal"}
_READ = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class Anthropic:
    """POST {base}/v1/messages."""

    base_url = "https://api.anthropic.com"
    key_env = "ANTHROPIC_API_KEY"

    def request(self, model: ModelSettings, key: str, conversation: Conversation) -> Request:
        body: dict[str, Any] = {
            "model": model.model,
            "max_tokens": model.max_tokens,
            "messages": [{"role": turn.role, "content": turn.content} for turn in conversation.messages],
            "stream": True,
        }
        if conversation.system:
            body["system"] = conversation.system
        if model.temperature is not None:
            body["temperature"] = model.temperature
        headers = {"anthropic-version": _VERSION} | ({"x-api-key": key} if key else {})
        return Request("/v1/messages", body | model.extra, headers)

    def reader(self) -> Reader:
        tokens = {"read": 0, "written": 0}

        def usage(value: Any) -> list[AnyPiece]:
            said = object_of(value)
            if not said:
                return []
            tokens["read"] = sum(count(said.get(name)) for name in _READ) or tokens["read"]
            tokens["written"] = count(said.get("output_tokens")) or tokens["written"]
            return [Usage(**tokens)]

        def read(event: str, data: str) -> list[AnyPiece]:
            value = decode(data)
            match text_of(value.get("type")) or event:
                case "message_start":
                    return usage(object_of(value.get("message")).get("usage"))
                case "content_block_start":
                    text = text_of(object_of(value.get("content_block")).get("text"))
                    return [Text(text)] if text else []
                case "content_block_delta":
                    delta = object_of(value.get("delta"))
                    if text := text_of(delta.get("text")):
                        return [Text(text)]
                    if thought := text_of(delta.get("thinking")):
                        return [Thought(thought)]
                case "message_delta":
                    why = text_of(object_of(value.get("delta")).get("stop_reason"))
                    end: list[AnyPiece] = [Finish(_REASONS.get(why, "stop"))] if why else []
                    return usage(value.get("usage")) + end
                case "message_stop":
                    return [Finish("stop")]
                case "error":
                    raise error_of(value) or ErrorEvent("an error without a message")
            return []

        return read


PROVIDER = Anthropic()
