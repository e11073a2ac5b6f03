"""A process that imports torch and pytest once and forks worlds of ranks on request. It imports no kit and compiles
nothing itself, so every world starts with the kit as it is after a fresh import.

One JSON object per line. Request: file, function, world, arguments, environment, timeout_s. Reply: {"values": what the
function returned on each rank} or {"error": why the first rank failed}.
"""

import faulthandler
import importlib.util
import json
import os
import sys
from typing import Any

import pytest  # noqa: F401 - test modules import it: 0.1 s in each rank

from sandbox.admission.ranks import RankFailed, in_gloo_ranks


def reply_to(request: dict[str, Any]) -> dict[str, Any]:
    def work(rank: int, world: int) -> Any:
        os.environ.update(request["environment"])
        faulthandler.dump_traceback_later(request["timeout_s"] - 1, exit=False)
        spec = importlib.util.spec_from_file_location("ranks_under_test", request["file"])
        module = importlib.util.module_from_spec(spec)
        sys.modules["ranks_under_test"] = module
        spec.loader.exec_module(module)
        return getattr(module, request["function"])(rank, world, *request["arguments"])

    try:
        return {"values": in_gloo_ranks(request["world"], work, request["timeout_s"])}
    except RankFailed as failed:
        return {"error": str(failed)}


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of ranks must not mix with replies
    for line in sys.stdin:
        replies.write(json.dumps(reply_to(json.loads(line))) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
