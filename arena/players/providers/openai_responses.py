"""OpenAI's responses: typed events, reasoning models."""

from typing import Any

from arena.players.player import AnyPiece, Conversation, Finish, Text, Thought, Usage
from arena.players.provider import (
    ErrorEvent,
    Reader,
    Request,
    count,
    decode,
    error_of,
    object_of,
    text_of,
)
from arena.settings import ModelSettings


class OpenAIResponses:
    """POST {base}/responses."""

    base_url = "https://api.openai.com/v1"
    key_env = "OPENAI_API_KEY"

    def request(self, model: ModelSettings, key: str, conversation: Conversation) -> Request:
        body: dict[str, Any] = {
            "model": model.model,
            "instructions": conversation.system,
            "input": [{"role": turn.role, "content": turn.content} for turn in conversation.messages],
            "stream": True,
            "store": False,
            "max_output_tokens": model.max_tokens,
        }
        if model.temperature is not None:
            body["temperature"] = model.temperature
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return Request("/responses", body | model.extra, headers)

    def reader(self) -> Reader:
        refused: list[str] = []

        def read(event: str, data: str) -> list[AnyPiece]:
            if data.strip() == "[DONE]":
                return []
            value = decode(data)
            response = object_of(value.get("response"))
            match text_of(value.get("type")) or event:
                case "response.output_text.delta":
                    return [Text(text_of(value.get("delta")))]
                case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                    return [Thought(text_of(value.get("delta")))]
                case "response.refusal.delta":
                    refused.append(text_of(value.get("delta")))
                case "response.completed":
                    end = Finish("refusal", "".join(refused)) if refused else Finish("stop")
                    return [_usage(response), end]
                case "response.incomplete":
                    why = text_of(object_of(response.get("incomplete_details")).get("reason"))
                    reason = "refusal" if refused or why == "content_filter" else "length"
                    return [_usage(response), Finish(reason, "".join(refused) or why)]
                case "response.failed":
                    raise error_of(response) or ErrorEvent("the response failed")
                case "error":
                    raise error_of(value) or ErrorEvent(
                        text_of(value.get("message")) or "an error without a message",
                        text_of(value.get("code")),
                    )
                case _ if (error := error_of(value)) is not None:
                    raise error
            return []

        return read


def _usage(response: dict[str, Any]) -> Usage:
    usage = object_of(response.get("usage"))
    return Usage(count(usage.get("input_tokens")), count(usage.get("output_tokens")))


PROVIDER = OpenAIResponses()
