"""OpenAI's Chat Completions API. Most servers support it: Together, OpenRouter, vLLM, llama.cpp, Ollama..."""

import json
from typing import Any

import msgspec

from arena.models import provider
from arena.models.conversation import AnyPiece, CallPart, Conversation, Finish, Message, Text, Thought, Usage
from arena.settings import ModelSettings

_REASONS = {"length": "length", "content_filter": "refusal", "model_length": "length"}
_RENAMED = ("max_tokens", "max_completion_tokens")
"""Newer models of OpenAI accept only the second name, most other servers only the first."""


class OpenAIChat:
    """POST {base}/chat/completions."""

    base_url = "https://api.openai.com/v1"
    key_env = "OPENAI_API_KEY"

    def request(self, model: ModelSettings, key: str, conversation: Conversation) -> provider.Request:
        messages: list[dict[str, Any]] = (
            [{"role": "system", "content": conversation.system}] if conversation.system else []
        )
        for turn in conversation.messages:
            messages += _messages(turn)
        limit = _RENAMED[not model.base_url or model.base_url.rstrip("/") == self.base_url]
        body: dict[str, Any] = {
            "model": model.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            limit: model.max_tokens,
        }
        if conversation.tools:
            body["tools"] = [{"type": "function", "function": msgspec.to_builtins(tool)} for tool in conversation.tools]
        if model.temperature is not None:
            body["temperature"] = model.temperature
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return provider.Request("/chat/completions", body | model.extra, headers)

    def reader(self) -> provider.Reader:
        refused: list[str] = []
        calls = _CallNumbers()

        def read(event: str, data: str) -> list[AnyPiece]:
            if data.strip() == "[DONE]":
                return [Finish("stop")]
            value = provider.decode(data)
            if (error := provider.error_of(value)) is not None:
                raise error
            pieces: list[AnyPiece] = []
            for choice in value.objects("choices")[:1]:
                delta = choice.object("delta") or choice.object("message")  # `message`: the answer is not streamed
                if thought := delta.text("reasoning_content") or delta.text("reasoning"):
                    pieces.append(Thought(thought))
                pieces += _content(delta.get("content"))
                for call in delta.objects("tool_calls") or provider.objects_of([delta.get("function_call") or None]):
                    pieces.append(_part(calls.of(call), call))
                if declined := delta.text("refusal"):
                    refused.append(declined)
                if why := choice.text("finish_reason"):
                    why = "refusal" if refused else _REASONS.get(why, "stop")
                    pieces.append(Finish(why, "".join(refused)))
            if usage := value.object("usage"):
                pieces.append(Usage(usage.number("prompt_tokens"), usage.number("completion_tokens")))
            return pieces

        return read


def _content(value: Any) -> list[AnyPiece]:
    """Converts content: a text, or a list of parts. A part is a text, or reasoning as a text or a list of texts."""
    if text := provider.text_of(value):
        return [Text(text)]
    pieces: list[AnyPiece] = []
    for part in provider.objects_of(value):
        if text := part.text("text"):
            pieces.append(Text(text))
        thought = part.get("thinking")
        said = provider.text_of(thought) or "".join(each.text("text") for each in provider.objects_of(thought))
        pieces += [Thought(said)] if said else []
    return pieces


def _messages(turn: Message) -> list[dict[str, Any]]:
    if turn.results:
        return [{"role": "tool", "tool_call_id": result.call_id, "content": result.text} for result in turn.results]
    if not turn.calls:
        return [{"role": turn.role, "content": turn.content}]
    calls = [
        {
            "id": call.call_id,
            "type": "function",
            # Chat templates of servers parse the arguments of earlier calls, and fail if they are not JSON.
            "function": {"name": call.name, "arguments": json.dumps(call.values)},
        }
        for call in turn.calls
    ]
    return [{"role": turn.role, "content": turn.content or None, "tool_calls": calls}]


class _CallNumbers:
    """Assigns deltas to calls. Most servers give an index, some give the same index to all calls, some give none."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._ids: dict[int, str] = {}
        self._count = 0

    def of(self, call: provider.Said) -> int:
        """Returns the number of the call that a delta belongs to."""
        index, said = call.get("index"), call.text("id")
        index = index if isinstance(index, int) else None
        number = self._numbers.get(index)
        if number is None or (said and self._ids[number] not in ("", said)):
            number = self._numbers[index] = self._count
            self._count += 1
            self._ids[number] = ""
        self._ids[number] = self._ids[number] or said
        return number


def _part(number: int, call: provider.Said) -> CallPart:
    function = call.object("function") or call  # the old `function_call` is the function itself
    arguments = function.get("arguments")
    if isinstance(arguments, dict):  # some servers send an object, not JSON text
        arguments = json.dumps(arguments)
    return CallPart(number, provider.text_of(arguments), function.text("name"), call.text("id"))


PROVIDER = OpenAIChat()
