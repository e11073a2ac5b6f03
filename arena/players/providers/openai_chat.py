"""OpenAI's chat completions, which most servers speak: Together, OpenRouter, vLLM, llama.cpp, Ollama..."""

from typing import Any

from arena.players.player import AnyPiece, Conversation, Finish, Text, Thought, Usage
from arena.players.provider import Reader, Request, count, decode, error_of, object_of, objects_of, text_of
from arena.settings import ModelSettings

_REASONS = {"length": "length", "content_filter": "refusal", "model_length": "length"}
_RENAMED = ("max_tokens", "max_completion_tokens")
"""Newer models of OpenAI take only the second, most other servers only the first."""


class OpenAIChat:
    """POST {base}/chat/completions."""

    base_url = "https://api.openai.com/v1"
    key_env = "OPENAI_API_KEY"

    def request(self, model: ModelSettings, key: str, conversation: Conversation) -> Request:
        messages = [{"role": "system", "content": conversation.system}] if conversation.system else []
        messages += [{"role": turn.role, "content": turn.content} for turn in conversation.messages]
        limit = _RENAMED[not model.base_url or model.base_url.rstrip("/") == self.base_url]
        body: dict[str, Any] = {
            "model": model.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            limit: model.max_tokens,
        }
        if model.temperature is not None:
            body["temperature"] = model.temperature
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return Request("/chat/completions", body | model.extra, headers)

    def reader(self) -> Reader:
        refused: list[str] = []

        def read(event: str, data: str) -> list[AnyPiece]:
            if data.strip() == "[DONE]":
                return [Finish("stop")]
            value = decode(data)
            if (error := error_of(value)) is not None:
                raise error
            pieces: list[AnyPiece] = []
            for choice in objects_of(value.get("choices"))[:1]:
                delta = object_of(choice.get("delta"))
                if thought := text_of(delta.get("reasoning_content")) or text_of(delta.get("reasoning")):
                    pieces.append(Thought(thought))
                if text := text_of(delta.get("content")):
                    pieces.append(Text(text))
                if declined := text_of(delta.get("refusal")):
                    refused.append(declined)
                if why := text_of(choice.get("finish_reason")):
                    why = "refusal" if refused else _REASONS.get(why, "stop")
                    pieces.append(Finish(why, "".join(refused)))
            if usage := object_of(value.get("usage")):
                pieces.append(Usage(count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))))
            return pieces

        return read


PROVIDER = OpenAIChat()
