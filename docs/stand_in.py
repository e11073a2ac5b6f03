"""A stand-in for a model: answers with kernels of this file over the same protocol as a model would."""

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import ClassVar

PIECE = 12
"""Characters that are sent at a time."""
NAME = "stand-in"

GATHERS = """\
import torch
import torch.distributed as dist


def solution(tensor: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return torch.stack(parts).float().sum(0).to(tensor.dtype)
"""
FORGETS_THE_BARRIER = """\
import torch

from sandbox.kit import symm


def solution(tensor: torch.Tensor) -> torch.Tensor:
    mine = symm.empty(tensor.shape, torch.float32)
    mine += tensor
    return sum(symm.peers(mine)).to(tensor.dtype)
"""
RIGHT = """\
import torch

from sandbox.kit import symm


def solution(tensor: torch.Tensor) -> torch.Tensor:
    peers = symm.peers(symm.stage(tensor))
    symm.barrier()
    total = peers[0].float()
    for peer in peers[1:]:
        total += peer
    return total.to(tensor.dtype)
"""
HALVES = """\
import torch

from sandbox.kit import symm


def solution(tensor: torch.Tensor) -> torch.Tensor:
    # Each rank adds up its own share of the rows, then reads the other shares where they were added up.
    rank, world = symm.rank, symm.world
    rows = torch.tensor_split(torch.arange(tensor.shape[0]), world)
    peers = symm.peers(symm.stage(tensor))
    symm.barrier()
    share = sum(peer[rows[rank]].float() for peer in peers)
"""


class StandIn(BaseHTTPRequestHandler):
    """Streams the next answer as chat completions."""

    answers: ClassVar[list[str]] = []
    hold: ClassVar[Event | None] = None
    """The last answer does not end before this is set."""
    pause_s: ClassVar[float] = 0.0
    """Between two pieces."""

    def do_POST(self) -> None:
        """Streams one answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        text = f"```python\n{self.answers.pop(0)}```\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        held = self.hold is not None and not self.answers
        if held:
            text = text.removesuffix("```\n").rstrip()
        for at in range(0, len(text), PIECE):
            self._say({"choices": [{"delta": {"content": text[at : at + PIECE]}}]})
            time.sleep(self.pause_s)
        if held and self.hold is not None:
            self.hold.wait()
        self._say({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        self._say({"choices": [], "usage": {"prompt_tokens": 6000, "completion_tokens": len(text) // 3}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _say(self, event: dict[str, object]) -> None:
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, format: str, *values: object) -> None:
        """Says nothing."""


def serve(answers: list[str]) -> str:
    """Starts the stand-in with these answers; its address."""
    StandIn.answers = answers
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"
