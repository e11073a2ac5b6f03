"""A model on 127.0.0.1 that writes at a given pace and never ends its answer, in OpenAI's chat completions.

    python -m benchmarks.app.token_server TOKENS_PER_SECOND

Prints its address, then serves until it is ended.
"""

import contextlib
import itertools
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from threading import Event

from arena.models.stand_in import serve
from arena.paths import ROOT, module_command, module_environment

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


@contextlib.contextmanager
def token_server(per_second: int) -> Iterator[str]:
    """Runs the server in a process of its own; yields its address."""
    process = subprocess.Popen(
        module_command("benchmarks.app.token_server", str(per_second)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=module_environment(),
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    server = serve(lambda prompt: tokens(float(sys.argv[1])))
    server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]  # the app has hung up
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    Event().wait()
