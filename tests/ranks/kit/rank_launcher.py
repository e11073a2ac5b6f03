"""A process that imports torch once and forks worlds of ranks on request: real ranks for tests, quickly.

One JSON object a line. Request: file, function, world, arguments, environment, timeout_s. Reply: one report
per rank with `value` (what the function returned) or `error` (its traceback, or that it died or hung).
"""

import faulthandler
import importlib.util
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def run_rank(request: dict, rank: int, store: str, result: int) -> None:
    os.environ.update(request["environment"])
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=request["world"],
            timeout=timedelta(seconds=request["timeout_s"]),
        )
        spec = importlib.util.spec_from_file_location("ranks_under_test", request["file"])
        module = importlib.util.module_from_spec(spec)
        sys.modules["ranks_under_test"] = module
        spec.loader.exec_module(module)
        report = {
            "value": getattr(module, request["function"])(rank, request["world"], *request["arguments"])
        }
    except BaseException:
        report = {"error": traceback.format_exc()}
    with os.fdopen(result, "w") as pipe:
        json.dump(report, pipe)
    sys.stderr.flush()
    os._exit(0)


def run_world(request: dict) -> list[dict]:
    with tempfile.TemporaryDirectory(prefix="ranks-") as directory:
        store = str(Path(directory) / "store")
        pids, pipes = [], []
        for rank in range(request["world"]):
            readable, writable = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(readable)
                faulthandler.dump_traceback_later(request["timeout_s"] - 1, exit=False)
                run_rank(request, rank, store, writable)
            os.close(writable)
            pids.append(pid)
            pipes.append(readable)
        reports = [{"error": "the rank died or hung"} for _ in pids]
        texts = dict.fromkeys(pipes, b"")
        waiting = set(pipes)
        deadline = time.monotonic() + request["timeout_s"]
        while waiting and time.monotonic() < deadline:
            for pipe in select.select(waiting, [], [], 0.1)[0]:
                data = os.read(pipe, 1 << 16)
                texts[pipe] += data
                if not data:
                    waiting.discard(pipe)
        for index, (pid, pipe) in enumerate(zip(pids, pipes, strict=True)):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(pipe)
            if texts[pipe]:
                reports[index] = json.loads(texts[pipe])
        return reports


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what ranks print must not mix with replies
    for line in sys.stdin:
        replies.write(json.dumps(run_world(json.loads(line))) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
