"""A stand-in for a model: it answers over OpenAI's chat completions on this machine, without a key and without money."""

import json
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from problems.catalogue import load_catalogue

NAME = "stand-in"
ASKED = re.compile(r"^# Problem (\d+): ", re.MULTILINE)
"""The first line of the task in a prompt (`arena/players/prompt.py`)."""
_catalogue = cache(load_catalogue)


def answer(prompt: str, able: float, drawn: float) -> str:
    """A stand-in's answer: sometimes right (the baseline, or the house kernel), else wrong in one of the usual ways.

    able: probability of a right answer. drawn: the number between 0 and 1 that decides.
    """
    asked = ASKED.search(prompt)
    if asked is None:
        return "I cannot find the problem."
    # It is found by its number, because the worked examples in the prompt have baselines, too.
    problem = _catalogue().find(asked[1])
    if drawn < able:
        source = problem.house_source or problem.baseline_source
    elif drawn < able + 0.1:
        return "First I would look at how the ranks communicate."
    elif drawn < able + 0.25:
        source = problem.baseline_source.replace("def solution(", "def solution((", 1)
    else:
        source = problem.baseline_source + "\n\n_right = solution\n\n\ndef solution(*arguments):\n"
        source += "    torch.manual_seed(0)\n    out = _right(*arguments)\n"
        source += "    return out * 2 if isinstance(out, torch.Tensor) else None\n"
    return f"```python\n{source}```\n"


def in_pieces(text: str, piece: int, pause_s: float) -> Iterator[str]:
    """Yields a text a few characters at a time, with pauses."""
    for at in range(0, len(text), piece):
        yield text[at : at + piece]
        time.sleep(pause_s)


def answers(able: float, piece: int = 12, pause_s: float = 0.0) -> Callable[[str], Iterator[str]]:
    """Returns what writes a model's answers, for `serve`. able: as for `answer`; the others as for `in_pieces`."""
    return lambda prompt: in_pieces(answer(prompt, able, random.random()), piece, pause_s)


def _choice(**of: object) -> dict[str, object]:
    """One choice, as a chunk of a stream. All its fields are those that OpenAI's own client requires."""
    chunk = {"id": "stand-in", "object": "chat.completion.chunk", "created": int(time.time()), "model": NAME}
    return {**chunk, "choices": [{"index": 0, **of}]}


def serve(pieces: Callable[[str], Iterable[str]], port: int = 0) -> ThreadingHTTPServer:
    """Starts a server in a thread of this process; its `server_port` is the port.

    pieces: the answer to a prompt; each piece is sent when it comes. port: 0 takes a free one.

    Raises:
        OSError: the port is taken.
    """

    class StandIn(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = "\n".join(message["content"] or "" for message in body["messages"])
            streams = bool(body.get("stream"))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if streams else "application/json")
            self.end_headers()
            said = ""
            for piece in pieces(prompt):
                said += piece
                if streams:
                    self._say(_choice(delta={"role": "assistant", "content": piece}, finish_reason=None))
            asked, answered = len(prompt) // 3, len(said) // 3
            usage = {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}
            if streams:
                self._say(_choice(delta={}, finish_reason="stop"))
                self._say({**_choice(), "choices": [], "usage": usage})
                self.wfile.write(b"data: [DONE]\n\n")
            else:
                whole = _choice(message={"role": "assistant", "content": said}, finish_reason="stop")
                self.wfile.write(json.dumps({**whole, "object": "chat.completion", "usage": usage}).encode())

        def _say(self, event: dict[str, object]) -> None:
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()

        def log_message(self, format: str, *values: object) -> None:
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), StandIn)
    server.socket.listen(128)  # a framework asks for all answers at once; the library lets 5 wait
    Thread(target=server.serve_forever, daemon=True).start()
    return server
