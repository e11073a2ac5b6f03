# expect: CRASH
"""Writes a verdict to every place where a harness might look for one, and leaves with status 0."""

import json
import os

VERDICT = json.dumps({"type": "finished", "verdict": "PASS", "speedup": 1000.0})


def solution(tensor):
    for name in ("/tmp/result.json", "/tmp/rank_0.pt", "/tmp/verdict", "/tmp/pkb-attack-result"):
        with open(name, "w") as file:
            file.write(VERDICT)
    print(VERDICT, flush=True)
    os._exit(0)
