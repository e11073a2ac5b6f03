"""Forwards connections from an agent program's jail to Unix sockets. Runs in the jail, with the standard library only.

bridge.py stdio SOCKET                        for the arena's tools: forwards stdin and stdout to the socket
bridge.py port PORT SOCKET COMMAND...         runs a command; forwards connections at 127.0.0.1:PORT to the socket
"""

import os
import socket
import subprocess
import sys
import threading

PIECE = 1 << 16


def main() -> int:
    """Runs one of the two modes. Returns the command's exit status, or 0 after `stdio`."""
    if sys.argv[1] == "stdio":
        with socket.socket(socket.AF_UNIX) as arena:
            arena.connect(sys.argv[2])
            threading.Thread(target=_send, args=(arena,), daemon=True).start()
            while piece := arena.recv(PIECE):
                os.write(1, piece)
        return 0
    server = socket.create_server(("127.0.0.1", int(sys.argv[2])))
    threading.Thread(target=_accept, args=(server, sys.argv[3]), daemon=True).start()
    done = subprocess.run(sys.argv[4:], check=False).returncode
    return done if done >= 0 else 128 - done


def _send(arena: socket.socket) -> None:
    while piece := os.read(0, PIECE):
        arena.sendall(piece)
    arena.shutdown(socket.SHUT_WR)


def _accept(server: socket.socket, path: str) -> None:
    while True:
        client, _ = server.accept()
        gateway = socket.socket(socket.AF_UNIX)
        gateway.connect(path)
        for ends in ((client, gateway), (gateway, client)):
            threading.Thread(target=_pump, args=ends, daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while piece := source.recv(PIECE):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        sink.close()


if __name__ == "__main__":
    sys.exit(main())
