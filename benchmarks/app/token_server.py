"""A model on 127.0.0.1 that writes at a given pace and never ends its answer, in OpenAI's chat completions.

    python -m benchmarks.app.token_server TOKENS_PER_SECOND

Prints its address, then serves until it is ended.
"""

import asyncio
import contextlib
import itertools
import json
import re
import sys
import time
from collections.abc import Iterator

TICK_S = 0.001
_LINE = "\n    total += peers[{number}].float() * scale  # 值 of rank {number}"
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    b'data: {"choices": [{"delta": {"role": "assistant", "content": "```python\\n"}}]}\n\n'
)


def tokens() -> Iterator[str]:
    """An endless kernel in pieces of about a token: a word and the space before it."""
    for number in itertools.count():
        yield from re.findall(r"\s*\S+", _LINE.format(number=number))


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, per_second: float) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        writer.write(_HEAD)
        began = time.monotonic()
        for sent, token in enumerate(tokens()):
            while sent >= (time.monotonic() - began) * per_second:
                await writer.drain()
                await asyncio.sleep(TICK_S)
            event = {"choices": [{"index": 0, "delta": {"content": token}, "finish_reason": None}]}
            writer.write(b"data: " + json.dumps(event).encode() + b"\n\n")  # one event a token, as servers do
    writer.close()


async def main(per_second: float) -> None:
    """Serves until it is cancelled."""
    server = await asyncio.start_server(lambda r, w: _serve(r, w, per_second), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"http://{host}:{port}/v1", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(float(sys.argv[1])))
