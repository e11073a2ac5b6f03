"""One engine for all tests of a session, for plain test functions: a machine with GPUs needs no plugin of pytest.

Also ranks that share one GPU, without an engine.
"""

import asyncio
import importlib
import os
import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kittens_faults import HEADERS
from rank_worlds import Worlds

from arena.machine.facts import torch_is_cpu_only, visible_gpus
from arena.paths import paths_in
from arena.runs.engine import Engine
from arena.runs.judge import RunRequest, judge_to_end
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.workspace.named_kernels import BASELINE
from problems.catalogue import load_catalogue
from sandbox.machine import thunderkittens
from sandbox.protocol.events import Result
from sandbox.protocol.kernel_files import Files
from sandbox.protocol.verdict import Verdict

MOST_RANKS = 2
"""Maximum ranks of a test in the engine; on one GPU there is one rank."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips tests that need GPUs if there are none, and tests marked `peers` if there is only one."""
    here = [item for item in items if item.get_closest_marker("gpu")]
    gpus = visible_gpus() if here and not torch_is_cpu_only() else 0
    for item in here:
        needed = MOST_RANKS if item.get_closest_marker("peers") else 1
        if gpus < needed:
            reason = f"GPUs that this torch can use: needed {needed}, found {gpus}"
            item.add_marker(pytest.mark.skip(reason=reason))


class Judge:
    """Runs kernels on two GPUs, or on the only one, through a real engine."""

    def __init__(self, folder: Path) -> None:
        self.catalogue = load_catalogue()
        self.world = min(MOST_RANKS, visible_gpus())
        self.seconds = 0.0
        """Duration of the last run, from the request to its end."""
        self._runner = asyncio.Runner()
        self._engine = Engine(paths_in(folder))

    def run(
        self,
        problem: str,
        source: str,
        *,
        name: str = "kernel.py",
        preset: str = "tiny",
        rounds: int | None = 0,
        dtype: str | None = None,
        files: Files | None = None,
        **sizes: int,
    ) -> Result:
        """Judges one kernel. rounds: 0 for the correctness check only."""
        found = self.catalogue.find(problem)
        choice = Choice(preset=preset, world=self.world, device="cuda", dtype=dtype, sizes=sizes)
        setting = choose_setting(found, choice, Settings())
        request = RunRequest(
            problem=found, setting=setting, kernel_name=name, source=source, files=files or {}, rounds=rounds
        )
        started = time.monotonic()
        judgement = self._runner.run(judge_to_end(self._engine, request))
        self.seconds = time.monotonic() - started
        return judgement.result

    def honest(self) -> Result:
        """Judges the baseline of problem 1 against itself: a fault must not affect the next run."""
        return self.run("1", "", name=BASELINE, rounds=1)

    def close(self) -> None:
        """Ends the engine with all its processes."""
        self._runner.run(self._engine.close())
        self._runner.close()


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """The engine. Its worlds stay warm, and use stand-in headers if no ThunderKittens checkout is named."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(thunderkittens.VARIABLE, os.environ.get(thunderkittens.VARIABLE) or str(HEADERS))
        judge = Judge(tmp_path_factory.mktemp("arena"))
        yield judge
        judge.close()


@pytest.fixture
def passes(judge: Judge):
    """passes(problem, source, ...): judges a kernel that must pass; the error says why it did not."""

    def check(problem: str, source: str, **options: object) -> Result:
        result = judge.run(problem, source, **options)
        text = result.failure.text if result.failure else ""
        assert result.verdict is Verdict.PASS, f"{result.verdict}: {result.detail}\n{text}"
        return result

    return check


WORLDS_AT_ONCE = 4
"""Worlds that share the GPU. A world spends most of its time starting and compiling."""
SYMM_BYTES = 1 << 30


class OneGpu:
    """Runs functions of one_gpu_ranks.py in fresh ranks, up to WORLDS_AT_ONCE worlds at a time."""

    def __init__(self, folder: Path) -> None:
        self.ranks: Any = importlib.import_module("one_gpu_ranks")  # imports torch, too
        """The module with the functions for `run`."""
        self._folder = folder
        self._log = (folder / "ranks.log").open("w")
        self._threads = ThreadPoolExecutor(WORLDS_AT_ONCE)
        self._all: list[Any] = []
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run(self, function: Callable[..., Any], world: int, *arguments: Any, timeout_s: float) -> Future[list[Any]]:
        """Runs function(rank, world, *arguments) when a place is free. The future holds each rank's result."""
        return self._threads.submit(self._run, function, world, arguments, timeout_s)

    def _run(self, function: Callable[..., Any], world: int, arguments: tuple[Any, ...], timeout_s: float) -> Any:
        try:
            worlds = self._idle.get_nowait()
        except queue.Empty:
            worlds = Worlds(self._folder, SYMM_BYTES, self._log)
            self._all.append(worlds)
        try:
            return worlds.run(function, world, *arguments, timeout_s=timeout_s)
        finally:
            self._idle.put(worlds)

    def printed(self) -> str:
        """The last 3000 characters printed by the ranks of all worlds."""
        return (self._folder / "ranks.log").read_text(errors="replace")[-3000:]

    def close(self) -> None:
        """Kills all worlds at once, so that an interrupted session does not wait for them."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worlds in self._all:
            worlds.kill()
        self._log.close()


@pytest.fixture(scope="session")
def one_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneGpu]:
    """Ranks that share one GPU, or CPU ranks: the functions take the device as an argument."""
    shared = OneGpu(tmp_path_factory.mktemp("one_gpu"))
    yield shared
    shared.close()
