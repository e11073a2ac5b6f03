"""Isolates every test from the settings, data and terminal of whoever runs it."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from forked_programs import COMMAND_LINE, CommandLine, Forked, read_problems_once, search_path
from model_server import ModelServer
from no_jail import no_jail
from shared_referee import SharedReferee
from waiting import PATIENCE_S

from arena.cli import COMMANDS
from arena.errors import ArenaError
from arena.machine.facts import is_jail
from arena.paths import Paths, paths_in
from sandbox.jail.choice import choose

TOGETHER = (
    ("tests/attacks/",),
    ("tests/ranks/kit/test_kit_",),
    (
        "tests/ranks/test_kernel_folders",
        "tests/ranks/test_house_kernels.py::test_the_judge_times_it",
        "tests/unit/cli/test_cli_run",
        "tests/unit/players/",
        "tests/unit/runs/test_api",
        "tests/unit/sweep/",
    ),
)
"""Starts of the ids of tests that share referees or forked ranks."""
_TERMINAL = {"NO_COLOR", "FORCE_COLOR", "COLORTERM", "EDITOR", "VISUAL", "COLUMNS", "LINES"}
_PR_SET_DUMPABLE = 4

# A job that a script starts in the background ignores SIGINT, and so would all programs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()  # collections during imports find nothing and take a third of the import time
read_problems_once()
ArenaError.add_note = lambda error, note: None  # `match=` compares the message, not the advice


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests with drawn examples as slow. Runs files with slow tests first, so that all processes end together."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("slow")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives tests that share a referee to one of several processes, because each process starts its own."""
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((each[0] for each in TOGETHER if nodeid.startswith(each)), super()._split_scope(nodeid))

    return Together(config, log)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shortens the ids of tests with long texts."""
    return f"{val[:60]}..." if isinstance(val, str) and len(val) > 120 else None


def pytest_collection_finish() -> None:
    """Excludes all imported objects from garbage collection, because they stay until the end. Collects others less often."""
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
    gc.freeze()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test's own for settings, data and state. Variables about colours and terminals are removed."""
    folder = tmp_path / "home"
    monkeypatch.setenv("PKB_ARENA_HOME", str(folder))
    monkeypatch.setenv("PYTHONPATH", search_path())
    for name in list(os.environ):
        kept = name == "PKB_ARENA_HOME" or name.startswith("TEXTUAL_SNAPSHOT")  # the snapshot plugin's own
        ours = name.startswith(("TEXTUAL_", "PKB_")) and not kept
        if ours or name in _TERMINAL:
            monkeypatch.delenv(name)
    return folder


@pytest.fixture(autouse=True)
def shown() -> Iterator[None]:
    """Ends what a player with a key does to this process: it hides it, and then a normal user cannot read /proc/self."""
    yield
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


@pytest.fixture
def paths(home: Path) -> Paths:
    """The folders of this test."""
    return paths_in(home)


@pytest.fixture
def small_budget(home: Path) -> None:
    """Lets measurements end as soon as settings allow, for tests that do not check what is measured."""
    (home / "config").mkdir(parents=True)
    (home / "config" / "settings.toml").write_text("seconds = 0.1\nlive_s = 0\n")


@pytest.fixture(scope="session")
def jail() -> None:
    """Skips tests of kernels that must not run without a jail if there can be none."""
    jail = choose()
    if not is_jail(jail.name):
        no_jail(jail.rejected.values())


@pytest.fixture(scope="session")
def command_lines() -> Iterator[Any]:
    """A process that has imported all commands."""
    modules = ["screens.main", *(f"arena.cli.{where.partition(':')[0]}" for where, _ in COMMANDS.values())]
    forked = Forked(modules, os.environ)
    yield forked
    forked.close()


@pytest.fixture
def pkb_arena(tmp_path: Path, command_lines: Any) -> CommandLine:
    """Runs the real command line in a process of its own, in this test's folder."""

    def call(*arguments: str, timeout: float = PATIENCE_S, **environment: str) -> "subprocess.CompletedProcess[str]":
        done: subprocess.CompletedProcess[str] = command_lines.run(
            COMMAND_LINE, arguments, tmp_path, os.environ | environment, timeout
        )
        return done

    return call


@pytest.fixture
def run_benchmark(tmp_path: Path) -> CommandLine:
    """Runs `python -m benchmarks` in a process of its own, in this test's folder."""
    return partial(_run_module, "benchmarks", tmp_path)


@pytest.fixture
def model_server() -> Iterator[Any]:
    """A model provider on 127.0.0.1 that answers with its `replies`."""
    server = ModelServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def shared_referee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A running referee. Engines use its `command` in tests that do not check how a referee starts or ends."""
    cache = {"PKB_KERNEL_CACHE": str(tmp_path_factory.mktemp("compiled"))}
    referee = SharedReferee(tmp_path_factory.mktemp("referee"), cache)
    yield referee
    referee.close()


@pytest.fixture
def started_anew(tmp_path: Path) -> CommandLine:
    """As `pkb_arena`, in an interpreter of its own."""
    return partial(_run_module, "screens.main", tmp_path)


def _run_module(
    module: str, folder: Path, *arguments: str, timeout: float = PATIENCE_S, **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-m", module, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | environment,
        check=False,
    )


PROBLEM_TOML = """
id = 901
slug = "total"
stem = "901_total"
title = "Sum over all ranks"
category = "collective"
domain = "tests"
origin = "tests"
class = "C"
collectives = ["all_reduce"]
worlds = [1, 2]
dtypes = ["float32"]

[presets]
tiny = {{ n = 64 }}
paper = {{ n = 64 }}
production = {{ n = 64 }}

[cost]
flops = "n"
local = "2*n*b"
sent = "n*b"
received = "n*b"

[check]
{check}
"""
PROBLEM_INPUTS = """
def draw(setting):
    return {"x": setting.randn(8, setting.sizes.n)}
"""
PROBLEM_BASELINE = """
import torch.distributed as dist


def solution(x):
    total = x.clone()
    dist.all_reduce(total)
    return total
"""
PROBLEM_EXCUSED = 'excused = { "input@1" = "with one rank the input is the answer" }'

MadeProblem = Callable[..., Path]


@pytest.fixture
def made_problem(tmp_path: Path) -> MadeProblem:
    """made_problem(inputs=..., baseline=..., check=..., toml=...): a tiny problem's folder; the defaults are valid."""

    def make(
        inputs: str = PROBLEM_INPUTS,
        baseline: str = PROBLEM_BASELINE,
        check: str = PROBLEM_EXCUSED,
        toml: str = PROBLEM_TOML,
    ) -> Path:
        folder = tmp_path / "problems" / "total"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "problem.toml").write_text(toml.format(check=check))
        (folder / "card.md").write_text("# Sum over all ranks")
        (folder / "inputs.py").write_text(inputs)
        (folder / "baseline.py").write_text(baseline)
        return folder

    return make
