"""Connects an engine, which starts it as its referee, to a running referee: `python referee_relay.py SOCKET`"""

import os
import selectors
import socket
import sys

CHUNK = 1 << 20


def main(path: str) -> None:
    """Forwards what the engine and the referee write, until one of them disconnects."""
    with socket.socket(socket.AF_UNIX) as referee, selectors.DefaultSelector() as waiting:
        referee.connect(path)
        waiting.register(0, selectors.EVENT_READ, referee.fileno())
        waiting.register(referee, selectors.EVENT_READ, 1)
        while True:
            for ready, _ in waiting.select():
                data = os.read(ready.fd, CHUNK)
                if not data:
                    return
                while data:
                    data = data[os.write(ready.data, data) :]


if __name__ == "__main__":
    main(sys.argv[1])
