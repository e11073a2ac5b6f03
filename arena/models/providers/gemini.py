"""Google's Gemini API."""

import itertools
import json
from typing import Any

import msgspec

from arena.models import provider
from arena.models.conversation import AnyPiece, CallPart, Conversation, Finish, Message, Text, Thought, Usage
from arena.settings import ModelSettings

_REFUSALS = {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE"}
_ROLES = {"assistant": "model"}


class Gemini:
    """POST {base}/models/MODEL:streamGenerateContent?alt=sse."""

    base_url = "https://generativelanguage.googleapis.com/v1beta"
    key_env = "GEMINI_API_KEY"

    def request(self, model: ModelSettings, key: str, conversation: Conversation) -> provider.Request:
        config: dict[str, Any] = {"maxOutputTokens": model.max_tokens}
        if model.temperature is not None:
            config["temperature"] = model.temperature
        body: dict[str, Any] = {
            "contents": [
                {"role": _ROLES.get(turn.role, turn.role), "parts": _parts(turn)} for turn in conversation.messages
            ],
            "generationConfig": config | provider.object_of(model.extra.get("generationConfig")),
        }
        if conversation.system:
            body["systemInstruction"] = {"parts": [{"text": conversation.system}]}
        if conversation.tools:
            body["tools"] = [{"functionDeclarations": msgspec.to_builtins(conversation.tools)}]
        body |= {name: value for name, value in model.extra.items() if name != "generationConfig"}
        # The key is in a header, because URLs are written to logs.
        headers = {"x-goog-api-key": key} if key else {}
        return provider.Request(f"/models/{model.model}:streamGenerateContent?alt=sse", body, headers)

    def reader(self) -> provider.Reader:
        calls = itertools.count()

        def read(event: str, data: str) -> list[AnyPiece]:
            value = provider.decode(data)
            if (error := provider.error_of(value)) is not None:
                raise error
            pieces: list[AnyPiece] = []
            end: Finish | None = None
            for candidate in value.objects("candidates")[:1]:
                for part in candidate.object("content").objects("parts"):
                    if text := part.text("text"):
                        pieces.append(Thought(text) if part.get("thought") else Text(text))
                    if isinstance(part.get("functionCall"), dict):
                        pieces.append(_call(next(calls), part))
                end = _finish(candidate.text("finishReason"), candidate.text("finishMessage"))
            if usage := value.object("usageMetadata"):
                written = usage.number("candidatesTokenCount") + usage.number("thoughtsTokenCount")
                pieces.append(Usage(usage.number("promptTokenCount"), written))
            if blocked := value.object("promptFeedback").text("blockReason"):
                end = Finish("refusal", blocked)
            return [*pieces, end] if end is not None else pieces

        return read


def _parts(turn: Message) -> list[dict[str, Any]]:
    if turn.results:
        return [
            {
                "functionResponse": _named(result.name, result.call_id)
                | {"response": {"error" if result.error else "result": result.text}}
            }
            for result in turn.results
        ]
    said: list[dict[str, Any]] = [{"text": turn.content}] if turn.content or not turn.calls else []
    for call in turn.calls:
        part: dict[str, Any] = {"functionCall": _named(call.name, call.call_id) | {"args": call.values}}
        said.append(part | ({"thoughtSignature": call.mark} if call.mark else {}))
    return said


def _named(name: str, call_id: str) -> dict[str, Any]:
    """Returns a call's name and id. Some versions of the service give no ids."""
    return {"name": name} | ({"id": call_id} if call_id else {})


def _call(number: int, part: provider.Said) -> CallPart:
    call = part.object("functionCall")
    return CallPart(
        number, json.dumps(call.get("args", {})), call.text("name"), call.text("id"), part.text("thoughtSignature")
    )


def _finish(reason: str, message: str) -> Finish | None:
    if not reason or reason == "FINISH_REASON_UNSPECIFIED":
        return None
    if reason == "MAX_TOKENS":
        return Finish("length")
    if reason in _REFUSALS:
        return Finish("refusal", message or reason)
    return Finish("stop", "" if reason == "STOP" else reason)


PROVIDER = Gemini()
