"""Runs a sweep with two stand-ins for models, kills it with SIGKILL several times, and checks its journal.

    python -m benchmarks.killed_sweep FOLDER [--problems SET] [--kills N] [--attempts K] [--ray]

FOLDER then has all results: `PKB_ARENA_HOME=FOLDER pkb-arena board` shows them. Needs a jail, as every sweep with
models.
"""

import json
import os
import random
import re
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from arena.paths import paths_in
from problems.catalogue import Catalogue, load_catalogue

PRICES = "price_in = 3.0\nprice_out = 15.0\n"
PIECE = 200
RESULT = b'"type":"result"'
ASKED = re.compile(r"^# Problem (\d+): ", re.MULTILINE)
"""The first line of the task in a prompt (`arena/players/prompts`)."""


@cache
def catalogue() -> Catalogue:
    """The problems, read once, because every answer needs them."""
    return load_catalogue()


def answer(prompt: str, able: float, drawn: float) -> str:
    """A stand-in's answer: sometimes right (the baseline, or the house kernel), else wrong in one of the usual ways.

    able: probability of a right answer. drawn: the number between 0 and 1 that decides.
    """
    asked = ASKED.search(prompt)
    if asked is None:
        return "I cannot find the problem."
    # It is found by its number, because the worked examples in the prompt have baselines, too.
    problem = catalogue().find(asked[1])
    if drawn < able:
        source = problem.house_source or problem.baseline_source
    elif drawn < able + 0.1:
        return "First I would look at how the ranks communicate."
    elif drawn < able + 0.25:
        source = problem.baseline_source.replace("def solution(", "def solution((", 1)
    else:
        source = (
            problem.baseline_source + "\n\n_right = solution\n\n\ndef solution(*arguments):\n    torch.manual_seed(0)\n"
        )
        source += "    out = _right(*arguments)\n    return out * 2 if isinstance(out, torch.Tensor) else None\n"
    return f"```python\n{source}```\n"


def serve(able: float) -> int:
    """Starts a provider of chat completions; returns its port."""

    class StandIn(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = "\n".join(message["content"] or "" for message in body["messages"])
            text = answer(prompt, able, random.random())
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for at in range(0, len(text), PIECE):
                self._say({"choices": [{"delta": {"content": text[at : at + PIECE]}}]})
            self._say({"choices": [{"delta": {}, "finish_reason": "stop"}]})
            usage = {"prompt_tokens": len(prompt) // 3, "completion_tokens": len(text) // 3}
            self._say({"choices": [], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")

        def _say(self, event: dict[str, object]) -> None:
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()

        def log_message(self, format: str, *values: object) -> None:
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def resident_mib(pid: int) -> float:
    """Resident memory of a process, MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    """Runs the sweep and prints its progress; exits with 1 if a result is lost or appears twice."""
    parser = ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--problems", default="all")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--attempts", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--ray", action="store_true", help="judge on a Ray cluster of this machine")
    given = parser.parse_args()
    home = given.folder.absolute()
    (home / "config").mkdir(parents=True, exist_ok=True)
    models = {"bright": serve(0.6), "dim": serve(0.2)}
    tables = (
        f'[models.{name}]\nprovider = "openai_chat"\nmodel = "{name}"\nbase_url = "http://127.0.0.1:{port}/v1"\n{PRICES}'
        for name, port in models.items()
    )
    (home / "config" / "settings.toml").write_text("\n".join(tables))
    command = [sys.executable, "-P", "-m", "arena.cli", "sweep", "--players", "baseline,house,model:bright,model:dim"]
    command += ["--problems", given.problems, "--attempts", str(given.attempts), "--rounds", str(given.rounds)]
    command += ["--preset", "tiny", "--device", "cpu", "--world", "2", "--one-size", "--name", "stand-ins", "--resume"]
    command += ["--ray"] if given.ray else []
    environment = os.environ | {"PKB_ARENA_HOME": str(home)}
    journal = paths_in(home).sweeps / "stand-ins.jsonl"

    def count() -> int:
        return journal.read_bytes().count(RESULT) if journal.exists() else 0

    chosen, started, seen = random.Random(1), time.monotonic(), set[str]()
    for session in range(given.kills + 1):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        wanted = count() + chosen.randint(15, 60) if session < given.kills else None
        told = 0
        while process.poll() is None and (wanted is None or count() < wanted):
            time.sleep(0.2)
            if (found := count()) >= told + 50:
                told = found
                print(
                    f"{time.monotonic() - started:6.0f} s  {found:4} results  {resident_mib(process.pid):.0f} MiB",
                    flush=True,
                )
        if wanted is not None:
            process.kill()
            process.wait()
            print(f"{time.monotonic() - started:6.0f} s  killed at {count()} results", flush=True)
        lines = [json.loads(line) for line in journal.read_bytes().split(b"\n")[:-1]]
        keys = [line["key"] for line in lines if line["type"] == "result" and line["verdict"] != "HARNESS_ERROR"]
        lost, twice = seen - set(keys), len(keys) - len(set(keys))
        seen |= set(keys)
        print(f"         {len(keys)} results, {len(lost)} lost, {twice} twice", flush=True)
        if lost or twice:
            sys.exit(1)
    asked = [json.dumps(line["cell"], sort_keys=True) for line in lines if line["type"] == "written"]
    print(f"{process.returncode=}  {len(asked)} answers, {len(asked) - len(set(asked))} paid for twice")
    print(dict(Counter(line["verdict"] for line in lines if line["type"] == "result")))


if __name__ == "__main__":
    main()
