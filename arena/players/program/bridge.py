"""Forwards connections from an agent program's jail to Unix sockets. Runs in the jail, with the standard library only.

bridge.py stdio SOCKET                        for the arena's tools: forwards stdin and stdout to the socket
bridge.py run SOCKET [FILE]                   submits a kernel, a file or a folder, and prints its verdict; exit status 0 for PASS
bridge.py play SOCKET PORT MODEL COMMAND...   runs a command; forwards connections at 127.0.0.1:PORT to the socket MODEL;
                                              at the end submits the kernel.py that the command left in its folder
"""

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from typing import Any, TextIO

PIECE = 1 << 16
CONNECTIONS = 8
"""Connections to the model at once; others wait. The gateway ends a program that has more."""
HOME_FILES = "home"
"""Folder beside this file, whose files a program finds in its home."""
KERNEL = "kernel.py"
LEFT = "left"
"""Name of the tool for the kernel that a program left. It is not judged again if it was submitted before."""


def main() -> int:
    """Runs one of the modes. Returns the command's exit status."""
    mode, tools, *rest = sys.argv[1:]
    if mode == "stdio":
        with _connected(tools) as arena:
            threading.Thread(target=_send, args=(arena,), daemon=True).start()
            while piece := arena.recv(PIECE):
                os.write(1, piece)
        return 0
    if mode == "run":
        return _submit(tools, "run", rest[0] if rest else KERNEL)
    port, model, *command = rest
    given = os.path.join(os.path.dirname(__file__), HOME_FILES)
    for name in os.listdir(given):
        shutil.copytree(os.path.join(given, name), os.path.join(os.environ["HOME"], name), dirs_exist_ok=True)
    if model:
        server = socket.create_server(("127.0.0.1", int(port)))
        threading.Thread(target=_accept, args=(server, model), daemon=True).start()
    done = subprocess.run(command, check=False).returncode
    if os.path.exists(KERNEL):
        with contextlib.suppress(OSError, ValueError), contextlib.redirect_stdout(None):
            _submit(tools, LEFT, KERNEL)
    return done if done >= 0 else 128 - done


def _connected(path: str) -> socket.socket:
    arena = socket.socket(socket.AF_UNIX)
    arena.connect(path)
    return arena


def _send(arena: socket.socket) -> None:
    while piece := os.read(0, PIECE):
        arena.sendall(piece)
    arena.shutdown(socket.SHUT_WR)


def _submit(tools: str, tool: str, path: str) -> int:
    """Passes a kernel to a tool and prints the result. Returns 0 if the kernel passes."""
    with open(__file__) as turn, _connected(tools) as arena, arena.makefile("rw", encoding="utf-8") as lines:
        fcntl.flock(turn, fcntl.LOCK_EX)  # one submission after the other, because connections are few
        client: dict[str, object] = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "bridge", "version": "1"},
        }
        _ask(lines, "initialize", client)
        lines.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n")
        result = _ask(lines, "tools/call", {"name": tool, "arguments": {"source": _source(path)}})
        text = "".join(part["text"] for part in result["content"])
        print(text)
        return 0 if not result.get("isError") and "# Verdict: PASS\n" in text else 1


def _ask(lines: TextIO, method: str, params: dict[str, object]) -> dict[str, Any]:
    lines.write(json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}) + "\n")
    lines.flush()
    while line := lines.readline():
        answer = json.loads(line)
        if answer.get("id") == method:
            result: dict[str, Any] = answer["result"]
            return result
    raise OSError("the arena's tools are gone")


def _source(path: str) -> str:
    """Reads a kernel: a file's text, or all files of a folder in Markdown fences that name them."""
    if not os.path.isdir(path):
        with open(path, encoding="utf-8") as file:
            return file.read(1 << 20)
    fences = []
    for folder, _, names in os.walk(path):
        for name in sorted(names):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                shown = os.path.relpath(file.name, path)
                fences.append(f"````{'python' if name.endswith('.py') else 'cuda'} {shown}\n{file.read(1 << 20)}\n````")
    return "\n".join(fences)


def _accept(server: socket.socket, model: str) -> None:
    free = threading.BoundedSemaphore(CONNECTIONS)
    while True:
        free.acquire()
        client, _ = server.accept()
        threading.Thread(target=_join, args=(client, model, free), daemon=True).start()


def _join(client: socket.socket, model: str, free: threading.BoundedSemaphore) -> None:
    with client, socket.socket(socket.AF_UNIX) as gateway, contextlib.suppress(OSError):
        gateway.connect(model)
        sending = threading.Thread(target=_pump, args=(client, gateway), daemon=True)
        sending.start()
        _pump(gateway, client)
        client.shutdown(socket.SHUT_RDWR)
        sending.join()
    free.release()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(PIECE):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main())
