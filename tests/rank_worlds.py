"""Worlds of freshly forked ranks for tests: a process that imports torch once forks them (tests/ranks/kit/rank_launcher.py)."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
from waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]
LAUNCHER = Path(__file__).parent / "ranks" / "kit" / "rank_launcher.py"


class Worlds:
    """Runs functions of test modules on ranks, one world at a time."""

    def __init__(self, cache: Path, symm_bytes: int, log: IO[str] | None = None) -> None:
        """cache: for what ranks compile; symm_bytes: symmetric memory per rank; log: for what ranks print."""
        paths = filter(None, (str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH")))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PKB_KERNEL_CACHE": str(cache),
            "PKB_SYMM_BYTES": str(symm_bytes),
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        self.process = subprocess.Popen(
            [sys.executable, str(LAUNCHER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def run(
        self,
        function: Callable[..., Any],
        world: int,
        *arguments: Any,
        timeout_s: float = PATIENCE_S,
        **environment: str,
    ) -> list[Any]:
        """Returns the results of function(rank, world, *arguments). Fails with the first failed rank's traceback."""
        request = {
            "file": function.__code__.co_filename,
            "function": function.__name__,
            "world": world,
            "arguments": arguments,
            "environment": environment,
            "timeout_s": timeout_s,
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the rank launcher died"
        reply = json.loads(line)
        if "error" in reply:
            pytest.fail(f"world of {world}, {reply['error']}", pytrace=False)
        values: list[Any] = reply["values"]
        return values

    def close(self) -> None:
        """Ends the forking process. It must not be running a function."""
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE_S)

    def kill(self) -> None:
        """Kills the forking process with all its ranks."""
        with contextlib.suppress(ProcessLookupError):  # all its processes have ended
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=PATIENCE_S)
