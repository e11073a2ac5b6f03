"""OpenAI's Responses API: typed events, reasoning models."""

import json
from typing import Any

import msgspec

from arena.models import provider
from arena.models.conversation import AnyPiece, CallPart, Conversation, Finish, Kept, Message, Text, Thought, Usage
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
            body["tools"] = [
                {"type": "function", "strict": False, **msgspec.to_builtins(tool)} for tool in conversation.tools
            ]
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
            response = value.object("response")
            match value.text("type") or event:
                case "response.output_text.delta":
                    return [Text(value.text("delta"))]
                case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                    return [Thought(value.text("delta"))]
                case "response.refusal.delta":
                    refused.append(value.text("delta"))
                case "response.output_item.added" | "response.output_item.done" as kind:
                    item = value.object("item")
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
                    why = response.object("incomplete_details").text("reason")
                    reason = "refusal" if refused or why == "content_filter" else "length"
                    return [_usage(response), Finish(reason, "".join(refused) or why)]
                case "response.failed":
                    raise provider.error_of(response) or provider.ErrorEvent("the response failed")
                case "error":
                    raise provider.error_of(value) or provider.ErrorEvent(
                        value.text("message") or "an error without a message", value.text("code")
                    )
                case _ if (error := provider.error_of(value)) is not None:
                    raise error
                case _ if value.get("object") == "response":  # the whole answer, not streamed
                    parts = [p for item in value.objects("output") for p in item.objects("content")]
                    finish = Finish("stop" if value.get("status") == "completed" else "length")
                    return [*(Text(part.text("text")) for part in parts), _usage(value), finish]
            return []

        return read


def _usage(response: provider.Said) -> Usage:
    usage = response.object("usage")
    return Usage(usage.number("input_tokens"), usage.number("output_tokens"))


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


class _OpenCalls:
    """Assigns events to calls by their index in the output."""

    def __init__(self) -> None:
        self._seen: dict[Any, int] = {}
        """Index in the output -> characters of arguments so far."""

    def item(self, event: provider.Said, item: provider.Said, done: bool) -> list[AnyPiece]:
        """Handles the start or end of a call. Returns the name, the id and the arguments that no delta contained."""
        place = self._place(event)
        whole = item.text("arguments") if done else ""
        rest = whole[self._seen[place] :]
        self._seen[place] += characters(rest)
        return [CallPart(place, rest, item.text("name"), item.text("call_id") or f"call_{place}")]

    def delta(self, event: provider.Said) -> list[AnyPiece]:
        """Handles more arguments of a call."""
        place, text = self._place(event), event.text("delta")
        self._seen[place] += characters(text)
        return [CallPart(place, text)]

    def _place(self, event: provider.Said) -> int:
        place = event.get("output_index")
        place = place if isinstance(place, int) else 0
        self._seen.setdefault(place, 0)
        return place


PROVIDER = OpenAIResponses()
