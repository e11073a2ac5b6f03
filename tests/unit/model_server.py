"""A model's provider on 127.0.0.1, over real sockets: streams in four protocols, and their failures."""

import json
import random
import socketserver
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

KEY = "sk-test-0123456789abcdefghijklmnopqrstuvwxyz"
PIECE = 40
"""Characters of text in one event."""


@dataclass
class Seen:
    """A request as the server got it."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float = field(default_factory=time.monotonic)

    @property
    def prompt(self) -> str:
        """All text that the model was given."""
        return json.dumps(self.body, ensure_ascii=False)


class Line:
    """The connection that a reply writes to."""

    def __init__(self, send: Callable[[bytes], None], gone: threading.Event) -> None:
        self._send = send
        self.gone = gone

    def head(self, status: str = "200 OK", kind: str = "text/event-stream", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._send("\r\n".join([*lines, "", ""]).encode())

    def chunk(self, data: bytes) -> None:
        if data:
            self._send(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self._send(b"0\r\n\r\n")


Reply = Callable[[Line, Seen], None]


def events(protocol: str, text: str, finish: str = "stop", usage: tuple[int, int] = (100, 50)) -> bytes:
    """A whole answer's events. finish: "stop", "length" or "refusal"."""
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    return b"".join(_EVENTS[protocol](pieces, finish, usage))


def _data(value: Any, name: str = "") -> bytes:
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(value).encode() + b"\n\n"


def _chat(pieces: list[str], finish: str, usage: tuple[int, int]) -> list[bytes]:
    def choice(delta: dict[str, Any], reason: str | None = None) -> bytes:
        return _data({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], "usage": None})

    reason = {"refusal": "content_filter"}.get(finish, finish)
    counted = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return [
        b": keep-alive\n\n",
        choice({"role": "assistant", "content": ""}),
        *(choice({"content": piece}) for piece in pieces),
        choice({}, reason),
        _data({"choices": [], "usage": counted}),
        b"data: [DONE]\n\n",
    ]


def _responses(pieces: list[str], finish: str, usage: tuple[int, int]) -> list[bytes]:
    counted = {"input_tokens": usage[0], "output_tokens": usage[1], "total_tokens": sum(usage)}
    told = [_data({"type": "response.created", "response": {"status": "in_progress"}}, "response.created")]
    for piece in pieces:
        kind = "response.refusal.delta" if finish == "refusal" else "response.output_text.delta"
        told.append(_data({"type": kind, "delta": piece}, kind))
    if finish == "length":
        response = {"usage": counted, "incomplete_details": {"reason": "max_output_tokens"}}
        return [*told, _data({"type": "response.incomplete", "response": response}, "response.incomplete")]
    return [
        *told,
        _data({"type": "response.completed", "response": {"id": "r", "usage": counted}}, "response.completed"),
    ]


def _anthropic(pieces: list[str], finish: str, usage: tuple[int, int]) -> list[bytes]:
    reason = {"stop": "end_turn", "length": "max_tokens"}.get(finish, finish)
    start = {"type": "message_start", "message": {"usage": {"input_tokens": usage[0], "output_tokens": 1}}}
    told = [
        _data(start, "message_start"),
        _data({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}, "content_block_start"),
        _data({"type": "ping"}, "ping"),
    ]
    for piece in pieces:
        delta = {"type": "text_delta", "text": piece}
        told.append(_data({"type": "content_block_delta", "delta": delta}, "content_block_delta"))
    end = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": usage[1]}}
    return [*told, _data(end, "message_delta"), _data({"type": "message_stop"}, "message_stop")]


def _gemini(pieces: list[str], finish: str, usage: tuple[int, int]) -> list[bytes]:
    reason = {"stop": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}[finish]
    told = [_data({"candidates": [{"content": {"parts": [{"text": piece}]}}]}) for piece in pieces]
    counted = {"promptTokenCount": usage[0], "candidatesTokenCount": usage[1]}
    return [*told, _data({"candidates": [{"finishReason": reason}], "usageMetadata": counted})]


Call = tuple[str, str]
"""A tool's name and the text of the arguments."""


def call_events(protocol: str, text: str, calls: list[Call], cut: int = 7) -> bytes:
    """An answer that says `text` and then calls tools; arguments come in pieces of `cut` characters."""
    return b"".join(_CALL_EVENTS[protocol](text, calls, cut))


def _cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _chat_calls(text: str, calls: list[Call], cut: int) -> list[bytes]:
    def delta(value: dict[str, Any], reason: str | None = None) -> bytes:
        return _data({"choices": [{"index": 0, "delta": value, "finish_reason": reason}]})

    told = [delta({"role": "assistant", "content": text or None})]
    for index, (name, arguments) in enumerate(calls):
        head = {"id": f"id-{index}", "type": "function", "function": {"name": name, "arguments": ""}}
        told.append(delta({"tool_calls": [{"index": index} | head]}))
        told += [
            delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            for piece in _cut(arguments, cut)
        ]
    counted = {"prompt_tokens": 100, "completion_tokens": 50}
    return [*told, delta({}, "tool_calls"), _data({"choices": [], "usage": counted}), b"data: [DONE]\n\n"]


def _responses_calls(text: str, calls: list[Call], cut: int) -> list[bytes]:
    def event(kind: str, **value: Any) -> bytes:
        return _data({"type": kind, **value}, kind)

    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    told = [event("response.output_item.done", output_index=0, item=thought)]
    told += [event("response.output_text.delta", delta=text)] if text else []
    for index, (name, arguments) in enumerate(calls, 2):
        head = {"type": "function_call", "id": f"fc-{index}", "call_id": f"id-{index}", "name": name}
        told.append(event("response.output_item.added", output_index=index, item=head | {"arguments": ""}))
        told += [
            event("response.function_call_arguments.delta", output_index=index, delta=piece)
            for piece in _cut(arguments, cut)
        ]
        done = head | {"arguments": arguments}
        told.append(event("response.output_item.done", output_index=index, item=done))
    counted = {"input_tokens": 100, "output_tokens": 50, "total_tokens": 150}
    return [*told, event("response.completed", response={"id": "r", "usage": counted})]


def _anthropic_calls(text: str, calls: list[Call], cut: int) -> list[bytes]:
    def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
        kinds = [("content_block_start", {"content_block": start})]
        kinds += [("content_block_delta", {"delta": delta}) for delta in deltas]
        kinds.append(("content_block_stop", {}))
        return [_data({"type": kind, "index": index, **rest}, kind) for kind, rest in kinds]

    start = {"type": "message_start", "message": {"usage": {"input_tokens": 100, "output_tokens": 1}}}
    told = [_data(start, "message_start")]
    told += block(
        0,
        {"type": "thinking", "thinking": ""},
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "sealed"},
    )
    if text:
        told += block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": text})
    for index, (name, arguments) in enumerate(calls, 2):
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in _cut(arguments, cut)]
        head = {"type": "tool_use", "id": f"id-{index}", "name": name, "input": {}}
        told += block(index, head, *pieces)
    end = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 50}}
    return [*told, _data(end, "message_delta"), _data({"type": "message_stop"}, "message_stop")]


def _gemini_calls(text: str, calls: list[Call], cut: int) -> list[bytes]:
    """Returns calls as Gemini sends them: whole, with JSON as arguments. Arguments that are no JSON become a string."""
    told = [_data({"candidates": [{"content": {"parts": [{"text": text}]}}]})] if text else []
    for name, arguments in calls:
        try:
            given = json.loads(arguments)
        except ValueError:
            given = arguments
        part = {"functionCall": {"name": name, "args": given}, "thoughtSignature": "sealed"}
        told.append(_data({"candidates": [{"content": {"parts": [part]}}]}))
    counted = {"promptTokenCount": 100, "candidatesTokenCount": 50}
    return [*told, _data({"candidates": [{"finishReason": "STOP"}], "usageMetadata": counted})]


_CALL_EVENTS = {
    "openai_chat": _chat_calls,
    "openai_responses": _responses_calls,
    "anthropic": _anthropic_calls,
    "gemini": _gemini_calls,
}

_EVENTS = {"openai_chat": _chat, "openai_responses": _responses, "anthropic": _anthropic, "gemini": _gemini}
PROTOCOLS = tuple(_EVENTS)


def protocol_of(seen: Seen) -> str:
    """Returns the protocol of a request, from its path."""
    for name, end in (
        ("openai_chat", "/chat/completions"),
        ("openai_responses", "/responses"),
        ("anthropic", "/messages"),
    ):
        if seen.path.endswith(end):
            return name
    return "gemini"


def fenced(source: str) -> str:
    """The text of an answer with a kernel in it."""
    return f"Here it is.\n\n```python\n{source}```\n"


def _in_chunks(
    data: Callable[[str], bytes], sizes: Callable[[], int] = lambda: 1 << 16, kind: str = "text/event-stream"
) -> Reply:
    """Returns a reply with `data(protocol)` for the request's protocol, cut into chunks of `sizes()` bytes."""

    def reply(line: Line, seen: Seen) -> None:
        line.head(kind=kind, Transfer_Encoding="chunked")
        send_in_chunks(line, data(protocol_of(seen)), sizes)
        line.end()

    return reply


def streamed(text: str, finish: str = "stop", usage: tuple[int, int] = (100, 50), **cut: Callable[[], int]) -> Reply:
    """Returns a reply with the text in the request's protocol. cut: `sizes`."""
    return _in_chunks(lambda protocol: events(protocol, text, finish, usage), **cut)


def calling(*calls: Call, text: str = "", **cut: Callable[[], int]) -> Reply:
    """Returns a reply with tool calls in the request's protocol. cut: `sizes`."""
    return _in_chunks(lambda protocol: call_events(protocol, text, list(calls)), **cut)


def raw(data: bytes, kind: str = "text/event-stream") -> Reply:
    """Returns a reply with status 200 and these bytes."""
    return _in_chunks(lambda protocol: data, kind=kind)


def send_in_chunks(line: Line, data: bytes, sizes: Callable[[], int]) -> None:
    at = 0
    while at < len(data):
        size = sizes()
        line.chunk(data[at : at + size])
        at += size


def random_sizes(seed: int) -> Callable[[], int]:
    """Chunk sizes that cut events, lines, UTF-8 sequences and JSON escapes anywhere."""
    chosen = random.Random(seed)
    return lambda: chosen.randint(1, 9)


def broken_off(text: str, after: int, later: bytes = b"") -> Reply:
    """Returns a reply that ends the connection after `after` bytes of the events, in the middle of the transfer.

    later: an event that follows the one which ends there.
    """

    def reply(line: Line, seen: Seen) -> None:
        line.head(Transfer_Encoding="chunked")
        told = events(protocol_of(seen), text)
        line.chunk(told[: told.index(b"\n\n", after) + 2] + later if later else told[:after])

    return reply


def status(code: str, body: str = "", **headers: str) -> Reply:
    """Returns a reply that is no stream, such as "429 Too Many Requests"."""

    def reply(line: Line, seen: Seen) -> None:
        data = body.encode()
        line.head(code, "application/json", Content_Length=str(len(data)), **headers)
        line._send(data)

    return reply


def dripping(first: bytes = b"data: {", drop: bytes = b" ") -> Reply:
    """Returns a reply that sends bytes until the client leaves, but never ends an event (slow loris)."""

    def reply(line: Line, seen: Seen) -> None:
        line.head(Transfer_Encoding="chunked")
        line.chunk(first)
        while not line.gone.is_set():
            line.chunk(drop)
            time.sleep(0.02)

    return reply


class ModelServer:
    """Answers requests with `replies` in turn, and then always with the last one; `seen` has all requests."""

    def __init__(self) -> None:
        self.replies: list[Reply | Callable[[Seen], Reply]] = []
        self.seen: list[Seen] = []
        self.left = threading.Event()
        """Set when a client disconnects in the middle of a reply, or of its request."""
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer._serve(self)

            def finish(self) -> None:
                if not self.raw_requestline:
                    outer.left.set()
                super().finish()

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        seen = Seen(handler.path, headers, json.loads(body or b"{}"))
        with self._lock:
            self.seen.append(seen)
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

        def send(data: bytes) -> None:
            try:
                handler.wfile.write(data)
                handler.wfile.flush()
            except OSError:
                self.left.set()
                raise

        reply(Line(send, self._stopped), seen)  # type: ignore[call-arg]
