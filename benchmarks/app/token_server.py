"""A model on 127.0.0.1 that writes at a given pace and never ends its answer, in OpenAI's chat completions.

    python -m benchmarks.app.token_server TOKENS_PER_SECOND

Prints its address, then serves until it is ended.
"""

import itertools
import re
import sys
import time
from collections.abc import Iterator
from threading import Event

from arena.models.stand_in import serve

TICK_S = 0.001
_LINE = "\n    total += peers[{number}].float() * scale  # 值 of rank {number}"


def tokens(per_second: float) -> Iterator[str]:
    """An endless kernel in pieces of about a token: a word and the space before it."""
    yield "```python\n"
    began, sent = time.monotonic(), 0
    for number in itertools.count():
        for token in re.findall(r"\s*\S+", _LINE.format(number=number)):
            while sent >= (time.monotonic() - began) * per_second:
                time.sleep(TICK_S)
            yield token
            sent += 1


if __name__ == "__main__":
    server = serve(lambda prompt: tokens(float(sys.argv[1])))
    server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]  # the app has hung up
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    Event().wait()
