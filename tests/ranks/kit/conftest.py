"""Real ranks for tests: forked processes with a gloo process group."""

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

    def reports(
        self,
        function: Callable[..., Any],
        world: int,
        *arguments: Any,
        timeout_s: float = 60,
        **environment: str,
    ) -> list[dict[str, Any]]:
        """Call function(rank, world, *arguments) on every rank; one report per rank.

        A report is {"value": ...} or {"error": traceback}.
        """
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
        reply = self.process.stdout.readline()
        assert reply, "the rank launcher died"
        return json.loads(reply)

    def run(self, function: Callable[..., Any], world: int, *arguments: Any, **options: Any) -> list[Any]:
        """What function returned on each rank; fails with the first rank's traceback when one raised."""
        reports = self.reports(function, world, *arguments, **options)
        for rank, report in enumerate(reports):
            if "error" in report:
                pytest.fail(f"rank {rank} of {world}:\n{report['error']}", pytrace=False)
        return [report["value"] for report in reports]


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
