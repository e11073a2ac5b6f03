"""An agent program for tests, with nothing but the standard library: it speaks JSON-RPC to the arena's tools.

It tries to read what its variables name, then submits a wrong kernel, reads the verdict, and submits a correct one.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

WRONG = "def solution(tensor):\n    return tensor.clone()\n"
RIGHT = """import torch.distributed as dist

def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total
"""


class Tools:
    """A client of the MCP server `arena` in the configuration that the arena wrote."""

    def __init__(self):
        with open(os.environ["PKB_ARENA_MCP"]) as file:
            server = json.load(file)["mcpServers"]["arena"]
        command = [server["command"], *server["args"]]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.number = 0
        client = {"name": "test", "version": "1"}
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        self.send(method="notifications/initialized")

    def send(self, **message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
        self.process.stdin.flush()

    def ask(self, method, **params):
        self.number += 1
        self.send(id=self.number, method=method, params=params)
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == self.number:
                return answer["result"]

    def call(self, name, **arguments):
        result = self.ask("tools/call", name=name, arguments=arguments)
        return result.get("isError", False), "".join(part["text"] for part in result["content"])


def look_around(things):
    """Returns all that could be read or reached of what the test names."""
    found, secret = [], things["terces"][::-1]
    for path in things["files"]:
        try:
            with open(path, "rb") as file:
                found.append([path, file.read(60).decode(errors="replace")])
        except OSError:
            pass
    for folder in things["folders"]:
        with contextlib.suppress(OSError):
            found += [[folder, name] for name in os.listdir(folder)]
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/environ", "rb") as file:
                if secret.encode() in file.read():
                    found.append([process, "environment"])
        except OSError:
            pass
    try:
        socket.create_connection(("127.0.0.1", things["port"]), timeout=5).close()
        found.append(["port", things["port"]])
    except OSError:
        pass
    if secret in json.dumps(dict(os.environ)):
        found.append(["own", "environment"])
    return found


def ask_model(endpoint, path):
    """Returns the status and the body of the endpoint's answer."""
    body = json.dumps({"model": "dear", "stream": False, "messages": []}).encode()
    request = urllib.request.Request(endpoint + path, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return [answer.status, answer.read().decode()]
    except urllib.error.HTTPError as error:
        return [error.code, error.read().decode()]


def use(what, size):
    """Uses so many MiB of memory or disk, processes, or seconds of CPU time; tries again what the system refuses."""
    kept, until = [], time.process_time() + size
    if what == "cpu":
        while time.process_time() < until:
            pass
    while what != "cpu" and len(kept) < size:
        try:
            if what == "memory":
                kept.append(b"x" * (1 << 20))
            elif what == "processes":
                kept.append(subprocess.Popen(["sleep", "600"]))
            elif what == "connections":
                with open(os.environ["PKB_ARENA_MCP"]) as file:
                    tools = json.load(file)["mcpServers"]["arena"]["args"][-1]
                kept.append(socket.socket(socket.AF_UNIX))
                kept[-1].connect(tools)
            else:
                with open(os.path.join(os.environ["HOME"], "filled"), "ab") as file:
                    kept.append(file.write(b"x" * (1 << 20)))
        except OSError:
            time.sleep(0.05)
    if what == "processes":
        for process in kept:
            process.kill()
            process.wait()


def main():
    task = sys.stdin.read()
    said = {"task": "solution(" in task, "home": os.listdir(os.environ["HOME"])}
    things = json.loads(os.environ.get("LOOK_AROUND", "null"))
    tools = Tools()
    said["tools"] = [tool["name"] for tool in tools.ask("tools/list")["tools"]]
    if things:
        said["found"] = look_around(things)
        said["refused"] = [tools.call(name, **arguments) for name, arguments in things["calls"]]
    for path in json.loads(os.environ.get("ASK", "[]")):
        said.setdefault("answers", []).append(ask_model(os.environ["ENDPOINT"], path))
    print(json.dumps(said), flush=True)
    if "WAIT" in os.environ:
        tools.process.wait()  # the MCP server never ends
    for what, size in json.loads(os.environ.get("USE", "{}")).items():
        use(what, size)
    first, second = json.loads(os.environ.get("KERNELS", "null")) or (WRONG, RIGHT)
    wrong, failure = tools.call("run", source=first)
    if "STAY" in os.environ:
        tools.process.wait()  # the MCP server never ends
    if wrong or "WRONG_RESULT" not in failure:
        sys.exit(f"no failure to learn from: {failure[:200]}")
    wrong, verdict = tools.call("run", source=second)
    print(verdict.splitlines()[2] if not wrong else verdict)


if __name__ == "__main__":
    main()
