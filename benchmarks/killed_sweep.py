"""Runs a sweep with two stand-ins for models, kills it with SIGKILL several times, and checks its journal.

    python -m benchmarks.killed_sweep FOLDER [--problems SET] [--kills N] [--attempts K] [--ray]

FOLDER then has all results: `PKB_ARENA_HOME=FOLDER pkb-arena board` shows them. Needs a jail, as every sweep with
models.
"""

import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from random import Random

from arena.models.stand_in import answers, serve
from arena.paths import paths_in
from benchmarks.soak import resident_mib

PRICES = "price_in = 3.0\nprice_out = 15.0\n"
RESULT = b'"type":"result"'


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
    models = {name: serve(answers(able, 200)).server_port for name, able in (("bright", 0.6), ("dim", 0.2))}
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

    chosen, started, seen = Random(1), time.monotonic(), set[str]()
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
