"""Real ranks for tests of the kit: forked from a process that has not imported the kit."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# The launcher has this folder on its path; the tests, which pytest imports one by one, have not.
_SPEC = importlib.util.spec_from_file_location(
    "exact_collectives", Path(__file__).with_name("exact_collectives.py")
)
assert _SPEC is not None
assert _SPEC.loader is not None
sys.modules["exact_collectives"] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(sys.modules["exact_collectives"])

LAUNCHER = Path(__file__).with_name("rank_launcher.py")
ROOT = Path(__file__).parents[3]


class Worlds:
    """Runs functions of a test module on freshly forked ranks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def run(
        self,
        function: Callable[..., Any],
        world: int,
        *arguments: Any,
        timeout_s: float = 60,
        **environment: str,
    ) -> list[Any]:
        """What function(rank, world, *arguments) returned on each rank; fails with the first failed rank's traceback."""
        request = {
            "file": function.__code__.co_filename,
            "function": function.__name__,
            "world": world,
            "arguments": arguments,
            "environment": environment,
            "timeout_s": timeout_s,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the rank launcher died"
        reply = json.loads(line)
        if "error" in reply:
            pytest.fail(f"world of {world}, {reply['error']}", pytrace=False)
        values: list[Any] = reply["values"]
        return values


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    cache = tmp_path_factory.mktemp("kernels")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PKB_KERNEL_CACHE": str(cache),
        "PKB_SYMM_BYTES": str(64 << 20),
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }
    process = subprocess.Popen(
        [sys.executable, str(LAUNCHER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    yield Worlds(process)
    assert process.stdin is not None
    process.stdin.close()
    process.wait(timeout=10)
