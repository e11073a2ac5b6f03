"""Google's Gemini."""

from typing import Any

from arena.players.player import AnyPiece, Conversation, Finish, Text, Thought, Usage
from arena.players.provider import Reader, Request, count, decode, error_of, object_of, objects_of, text_of
from arena.settings import ModelSettings

_REFUSALS = {
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "LANGUAGE",
}
_ROLES = {"assistant": "model"}


class Gemini:
    """POST {base}/models/MODEL:streamGenerateContent?alt=sse."""

    base_url = "https://generativelanguage.googleapis.com/v1beta"
    key_env = "GEMINI_API_KEY"

    def request(self, model: ModelSettings, key: str, conversation: Conversation) -> Request:
        config: dict[str, Any] = {"maxOutputTokens": model.max_tokens}
        if model.temperature is not None:
            config["temperature"] = model.temperature
        body: dict[str, Any] = {
            "contents": [
                {"role": _ROLES.get(turn.role, turn.role), "parts": [{"text": turn.content}]}
                for turn in conversation.messages
            ],
            "generationConfig": config | object_of(model.extra.get("generationConfig")),
        }
        if conversation.system:
            body["systemInstruction"] = {"parts": [{"text": conversation.system}]}
        body |= {name: value for name, value in model.extra.items() if name != "generationConfig"}
        # The key goes into a header: in the address it would end up in logs.
        headers = {"x-goog-api-key": key} if key else {}
        return Request(f"/models/{model.model}:streamGenerateContent?alt=sse", body, headers)

    def reader(self) -> Reader:
        def read(event: str, data: str) -> list[AnyPiece]:
            value = decode(data)
            if (error := error_of(value)) is not None:
                raise error
            pieces: list[AnyPiece] = []
            end: Finish | None = None
            for candidate in objects_of(value.get("candidates"))[:1]:
                for part in objects_of(object_of(candidate.get("content")).get("parts")):
                    if text := text_of(part.get("text")):
                        pieces.append(Thought(text) if part.get("thought") else Text(text))
                end = _finish(text_of(candidate.get("finishReason")), text_of(candidate.get("finishMessage")))
            if usage := object_of(value.get("usageMetadata")):
                written = count(usage.get("candidatesTokenCount")) + count(usage.get("thoughtsTokenCount"))
                pieces.append(Usage(count(usage.get("promptTokenCount")), written))
            if blocked := text_of(object_of(value.get("promptFeedback")).get("blockReason")):
                end = Finish("refusal", blocked)
            return [*pieces, end] if end is not None else pieces

        return read


def _finish(reason: str, message: str) -> Finish | None:
    if not reason or reason == "FINISH_REASON_UNSPECIFIED":
        return None
    if reason == "MAX_TOKENS":
        return Finish("length")
    if reason in _REFUSALS:
        return Finish("refusal", message or reason)
    return Finish("stop", "" if reason == "STOP" else reason)


PROVIDER = Gemini()
