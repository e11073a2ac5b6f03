"""Anthropic's Messages API."""

import json
from typing import Any

from arena.models import provider
from arena.models.conversation import AnyPiece, CallPart, Conversation, Finish, Kept, Message, Text, Thought, Usage
from arena.models.reading import joined
from arena.settings import ModelSettings

_VERSION = "2023-06-01"
_REASONS = {"max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "refusal"}
_READ = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class Anthropic:
    """POST {base}/v1/messages."""

    base_url = "https://api.anthropic.com"
    key_env = "ANTHROPIC_API_KEY"

    def request(self, model: ModelSettings, key: str, conversation: Conversation) -> provider.Request:
        body: dict[str, Any] = {
            "model": model.model,
            "max_tokens": model.max_tokens,
            "messages": [{"role": turn.role, "content": _content(turn)} for turn in conversation.messages],
            "stream": True,
        }
        if conversation.system:
            body["system"] = conversation.system
        if conversation.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
                for tool in conversation.tools
            ]
        if model.temperature is not None:
            body["temperature"] = model.temperature
        headers = {"anthropic-version": _VERSION} | ({"x-api-key": key} if key else {})
        return provider.Request("/v1/messages", body | model.extra, headers)

    def reader(self) -> provider.Reader:
        tokens = {"read": 0, "written": 0}
        blocks: dict[int, _ContentBlock] = {}

        def usage(said: provider.Said) -> list[AnyPiece]:
            if not said:
                return []
            tokens["read"] = sum(said.number(name) for name in _READ) or tokens["read"]
            tokens["written"] = said.number("output_tokens") or tokens["written"]
            return [Usage(**tokens)]

        def read(event: str, data: str) -> list[AnyPiece]:
            value = provider.decode(data)
            match value.text("type") or event:
                case "message":  # the whole answer, not streamed
                    found = value.objects("content")
                    why = value.text("stop_reason")
                    texts: list[AnyPiece] = [Text(block.text("text")) for block in found]
                    return [*texts, *usage(value.object("usage")), Finish(_REASONS.get(why, "stop"))]
                case "message_start":
                    return usage(value.object("message").object("usage"))
                case "content_block_start":
                    opened = blocks[value.number("index")] = _ContentBlock(value.object("content_block"))
                    return opened.begin(value.number("index"))
                case "content_block_delta":
                    delta = value.object("delta")
                    if (known := blocks.get(value.number("index"))) is not None:
                        known.take(delta)
                    if arguments := delta.text("partial_json"):
                        return [CallPart(value.number("index"), arguments)]
                    if text := delta.text("text"):
                        return [Text(text)]
                    if thought := delta.text("thinking"):
                        return [Thought(thought)]
                case "content_block_stop":
                    if (known := blocks.pop(value.number("index"), None)) is not None:
                        return known.end(value.number("index"))
                case "message_delta":
                    why = value.object("delta").text("stop_reason")
                    end: list[AnyPiece] = [Finish(_REASONS.get(why, "stop"))] if why else []
                    return usage(value.object("usage")) + end
                case "message_stop":
                    return [Finish("stop")]
                case "error":
                    raise provider.error_of(value) or provider.ErrorEvent("an error without a message")
            return []

        return read


def _content(turn: Message) -> str | list[dict[str, Any]]:
    if turn.results:
        return [
            {"type": "tool_result", "tool_use_id": result.call_id, "content": result.text, "is_error": result.error}
            for result in turn.results
        ]
    if not turn.calls:
        return turn.content
    said = [{"type": "text", "text": turn.content}] if turn.content.strip() else []
    calls = [{"type": "tool_use", "id": call.call_id, "name": call.name, "input": call.values} for call in turn.calls]
    return [*turn.kept, *said, *calls]


class _ContentBlock:
    """A block of an answer that is being streamed."""

    def __init__(self, start: provider.Said) -> None:
        self._start = start
        self._thought: list[str] = []
        self._signature = ""
        self._arguments = False

    def begin(self, number: int) -> list[AnyPiece]:
        """Returns the pieces that the block's start event contains."""
        match self._start.get("type"):
            case "tool_use":
                name, call_id = self._start.text("name"), self._start.text("id")
                return [CallPart(number, name=name, call_id=call_id or f"call_{number}")]
            case "redacted_thinking":
                return [Kept(self._start)]
        text = self._start.text("text")
        return [Text(text)] if text else []

    def take(self, delta: provider.Said) -> None:
        """Adds a delta. Stores signed reasoning, which must go back to the provider unchanged."""
        self._thought.append(delta.text("thinking"))
        self._signature += delta.text("signature")
        self._arguments = self._arguments or bool(delta.text("partial_json"))

    def end(self, number: int) -> list[AnyPiece]:
        """Returns the pieces that are known only when the block is complete."""
        given = self._start.object("input")
        if self._start.get("type") == "tool_use" and given and not self._arguments:
            return [CallPart(number, json.dumps(given))]
        if self._signature:
            thought = joined("".join(self._thought))
            return [Kept({"type": "thinking", "thinking": thought, "signature": self._signature})]
        return []


PROVIDER = Anthropic()
