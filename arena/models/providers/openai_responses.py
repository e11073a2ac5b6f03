"""OpenAI's Responses API: typed events, reasoning models."""

import json
from typing import Any

from arena.models import provider
from arena.models.conversation import (
    AnyPiece,
    CallPart,
    Conversation,
    Finish,
    Kept,
    Message,
    Text,
    Thought,
    Tool,
    Usage,
)
from arena.models.reading import characters
from arena.settings import ModelSettings


class OpenAIResponses:
    """POST {base}/responses."""

    base_url = "https://api.openai.com/v1"
    key_env = "OPENAI_API_KEY"

    def request(self, model: ModelSettings, key: str, conversation: Conversation) -> provider.Request:
        body: dict[str, Any] = {
            "model": model.model,
            "instructions": conversation.system,
            "input": [item for turn in conversation.messages for item in _items(turn)],
            "stream": True,
            "store": False,
            "max_output_tokens": model.max_tokens,
        }
        if conversation.tools:
            body["tools"] = [_tool(tool) for tool in conversation.tools]
        if model.temperature is not None:
            body["temperature"] = model.temperature
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return provider.Request("/responses", body | model.extra, headers)

    def reader(self) -> provider.Reader:
        refused: list[str] = []
        calls = _OpenCalls()

        def read(event: str, data: str) -> list[AnyPiece]:
            if data.strip() == "[DONE]":
                return []
            value = provider.decode(data)
            response = provider.object_of(value.get("response"))
            match provider.text_of(value.get("type")) or event:
                case "response.output_text.delta":
                    return [Text(provider.text_of(value.get("delta")))]
                case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                    return [Thought(provider.text_of(value.get("delta")))]
                case "response.refusal.delta":
                    refused.append(provider.text_of(value.get("delta")))
                case "response.output_item.added" | "response.output_item.done" as kind:
                    item = provider.object_of(value.get("item"))
                    if item.get("type") == "function_call":
                        return calls.item(value, item, done=kind.endswith("done"))
                    if item.get("type") == "reasoning" and item.get("encrypted_content"):
                        return [Kept(item)]
                case "response.function_call_arguments.delta":
                    return calls.delta(value)
                case "response.completed":
                    end = Finish("refusal", "".join(refused)) if refused else Finish("stop")
                    return [_usage(response), end]
                case "response.incomplete":
                    why = provider.text_of(provider.object_of(response.get("incomplete_details")).get("reason"))
                    reason = "refusal" if refused or why == "content_filter" else "length"
                    return [_usage(response), Finish(reason, "".join(refused) or why)]
                case "response.failed":
                    raise provider.error_of(response) or provider.ErrorEvent("the response failed")
                case "error":
                    raise provider.error_of(value) or provider.ErrorEvent(
                        provider.text_of(value.get("message")) or "an error without a message",
                        provider.text_of(value.get("code")),
                    )
                case _ if (error := provider.error_of(value)) is not None:
                    raise error
                case _ if value.get("object") == "response":  # the whole answer, not streamed
                    parts = [
                        p
                        for item in provider.objects_of(value.get("output"))
                        for p in provider.objects_of(item.get("content"))
                    ]
                    finish = Finish("stop" if value.get("status") == "completed" else "length")
                    return [*(Text(provider.text_of(part.get("text"))) for part in parts), _usage(value), finish]
            return []

        return read


def _usage(response: dict[str, Any]) -> Usage:
    usage = provider.object_of(response.get("usage"))
    return Usage(provider.count(usage.get("input_tokens")), provider.count(usage.get("output_tokens")))


def _items(turn: Message) -> list[dict[str, Any]]:
    if turn.results:
        return [
            {"type": "function_call_output", "call_id": result.call_id, "output": result.text}
            for result in turn.results
        ]
    said = [{"role": turn.role, "content": turn.content}] if turn.content or not turn.calls else []
    calls = [
        {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": json.dumps(call.values)}
        for call in turn.calls
    ]
    return [*turn.kept, *said, *calls]


def _tool(tool: Tool) -> dict[str, Any]:
    told = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "strict": False, **told}


class _OpenCalls:
    """Assigns events to calls by their index in the output."""

    def __init__(self) -> None:
        self._seen: dict[Any, int] = {}
        """Index in the output -> characters of arguments so far."""

    def item(self, event: dict[str, Any], item: dict[str, Any], done: bool) -> list[AnyPiece]:
        """Handles the start or end of a call. Returns the name, the id and the arguments that no delta contained."""
        place = self._place(event)
        whole = provider.text_of(item.get("arguments")) if done else ""
        rest = whole[self._seen[place] :]
        self._seen[place] += characters(rest)
        return [
            CallPart(
                place,
                rest,
                provider.text_of(item.get("name")),
                provider.text_of(item.get("call_id")) or f"call_{place}",
            )
        ]

    def delta(self, event: dict[str, Any]) -> list[AnyPiece]:
        """Handles more arguments of a call."""
        place, text = self._place(event), provider.text_of(event.get("delta"))
        self._seen[place] += characters(text)
        return [CallPart(place, text)]

    def _place(self, event: dict[str, Any]) -> int:
        place = event.get("output_index")
        place = place if isinstance(place, int) else 0
        self._seen.setdefault(place, 0)
        return place


PROVIDER = OpenAIResponses()
