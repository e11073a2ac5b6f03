"""What passes the gateway: fields and function tools of a program's requests, and answers without the key."""

from collections.abc import Iterator
from typing import Any

import msgspec

from arena.models.connection.keys import Hiding, Key
from arena.models.connection.provider import count, object_of, objects_of
from arena.models.conversation import Conversation
from arena.models.providers import find_provider
from arena.settings import ModelSettings

_SAMPLING = "temperature top_p top_k min_p stop seed frequency_penalty presence_penalty repetition_penalty"
_FIELDS = {
    "anthropic": "system stop_sequences temperature top_k top_p thinking output_config cache_control tool_choice",
    "openai_chat": f"{_SAMPLING} max_tokens max_completion_tokens tool_choice parallel_tool_calls response_format "
    "reasoning_effort reasoning thinking verbosity logprobs top_logprobs chat_template_kwargs prompt_cache_key",
    "openai_responses": "temperature top_p tool_choice parallel_tool_calls reasoning text include truncation prompt_cache_key",
    "gemini": "systemInstruction toolConfig safetySettings",
}
"""Fields by provider, beside those that the arena sends itself. All others, such as service_tier, are left out."""
_GEMINI_CONFIG = (
    *("temperature", "topP", "topK", "maxOutputTokens", "stopSequences", "seed", "thinkingConfig", "responseMimeType"),
    *("responseSchema", "responseJsonSchema", "presencePenalty", "frequencyPenalty"),
)
_TOOL_KEYS = (
    *("type", "name", "description", "input_schema", "parameters", "strict", "cache_control", "function", "custom"),
    *("format", "tools", "functionDeclarations"),
)
_TOOL_KINDS = (None, "function", "custom", "namespace")
"""Tools that the program runs itself. A provider's own tools reach the network, or cost money."""
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_GROWING = frozenset(
    {"text", "content", "delta", "thinking", "partial_json", "arguments", "reasoning", "reasoning_content"}
)
"""Names of the texts that a stream continues from event to event."""


class Unasked(Exception):
    """A request that must not pass. The message says why."""


def passed_on(model: ModelSettings, asked: Any, free: bool) -> tuple[dict[str, Any], int, set[str]]:
    """Returns the body of a program's request as it may pass, the maximum tokens of its answer, and what was left out.

    free: it counts tokens only.

    Raises:
        Unasked: it is no JSON object, or the provider would fetch an address or a stored file for it.
    """
    if not isinstance(asked, dict):
        raise Unasked("the request is no JSON object")
    own = find_provider(model.provider).request(msgspec.structs.replace(model, extra={}), "", Conversation("", ())).body
    names = {*_FIELDS.get(model.provider, "").split(), *own, "tools"}
    body = {name: value for name, value in asked.items() if name in names and name not in model.omit}
    left_out = asked.keys() - names
    if "tools" in body:
        body["tools"] = _function_tools(body["tools"], left_out)
        if not body["tools"]:
            body.pop("tools"), body.pop("tool_choice", None)
    if any(map(_fetches, (body.get(name) for name in ("messages", "input", "contents", "system")))):
        raise Unasked("the provider would fetch an address or a stored file; put the data into the request")
    if "model" in asked:
        body["model"] = model.model
    if free:
        return {name: value for name, value in body.items() if name not in (*_LIMITS, "stream")}, 0, left_out
    body |= model.extra  # what the user has listed is asked for, whatever the program asks
    if "generationConfig" in own:
        config = {k: v for k, v in object_of(body.get("generationConfig")).items() if k in _GEMINI_CONFIG}
        body["generationConfig"] = config = object_of(own["generationConfig"]) | config
        return body, count(config.get("maxOutputTokens")), left_out
    limits = [name for name in _LIMITS if count(body.get(name))]
    if not limits:
        body |= {name: own[name] for name in _LIMITS if name in own and name not in model.omit}
    body |= {name: own[name] for name in ("store",) if name in own}
    if body.get("stream") and "stream_options" in own and "stream_options" not in model.omit:
        body["stream_options"] = own["stream_options"]
    return body, max([count(body.get(name)) for name in _LIMITS] or [0]) or model.max_tokens, left_out


def _function_tools(tools: Any, left_out: set[str]) -> list[dict[str, Any]]:
    kept = []
    for tool in objects_of(tools):
        kind = tool.get("type")
        shown = {name: value for name, value in tool.items() if name in _TOOL_KEYS}
        if kind == "namespace":
            shown["tools"] = _function_tools(tool.get("tools"), left_out)
        if kind in _TOOL_KINDS and shown.keys() - {"type"}:
            kept.append(shown)
        else:
            left_out.add(f"tool {kind or ', '.join(tool)}")
    return kept


def _fetches(value: Any) -> bool:
    """Whether a part of a conversation names data that the provider must fetch. Arguments of calls are only data."""
    if isinstance(value, list):
        return any(map(_fetches, value))
    if not isinstance(value, dict):
        return False
    image = value.get("image_url")
    address = image.get("url") if isinstance(image, dict) else image
    return (
        object_of(value.get("source")).get("type") in ("url", "file")
        or (isinstance(address, str) and not address.startswith("data:"))
        or not value.keys().isdisjoint(("file_id", "file_url", "fileData", "fileUri", "file_uri"))
        or isinstance(value.get("file_data"), dict)
        or any(_fetches(part) for name, part in value.items() if name in ("content", "parts", "file", "output"))
    )


def without_key(body: str, key: Key) -> str:
    """Hides the key in a whole body, also where JSON escapes its characters."""
    hidden = HiddenKey(key)
    return "".join([*hidden.feed(body), *hidden.end()])


class HiddenKey:
    """Hides the key in the events of one stream, also if it is split between events.

    An event whose text ends like the beginning of the key is held back until the next part of this text.
    """

    def __init__(self, key: Key) -> None:
        self._key = key
        self._texts: dict[tuple[Any, ...], Hiding] = {}
        self._last: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        """Where each text was continued last: an object or a list, and the text's name or index in it."""
        self._held: list[Any] = []

    def feed(self, data: str) -> Iterator[str]:
        """Takes an event's data. Yields the data of the events that may pass, in order: one for each event."""
        if not self._key:
            yield data
            return
        try:
            event = [msgspec.json.decode(data)]
            self._hide(event, 0, ())
        except (ValueError, RecursionError):
            event = [msgspec.Raw(data.encode())]
        self._held.append(event)
        if not any(text.holds for text in self._texts.values()):
            yield from self._released()

    def end(self) -> Iterator[str]:
        """Yields the data of the events that were held back, after the last event."""
        for place, (holder, name) in self._last.items():
            holder[name] += self._texts[place].end()
        yield from self._released()

    def _released(self) -> Iterator[str]:
        held, self._held = self._held, []
        yield from (self._key.hide_in(msgspec.json.encode(event[0]).decode()) for event in held)

    def _hide(self, holder: Any, name: Any, place: tuple[Any, ...]) -> None:
        """Hides the key in holder[name]. place: the names and indices that lead there."""
        match holder[name]:
            case str() as said if place and name in _GROWING:
                holder[name] = self._texts.setdefault(place, Hiding(self._key)).feed(said)
                self._last[place] = (holder, name)
            case str() as said:
                holder[name] = self._key.hide_in(said)
            case dict() | list() as inner:
                for each in inner if isinstance(inner, dict) else range(len(inner)):
                    self._hide(inner, each, (*place, each))
