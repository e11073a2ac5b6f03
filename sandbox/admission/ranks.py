"""Runs a function on W forked ranks with a gloo process group, without jail, arenas and clock."""

import gc
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from sandbox.rank.devices.device import Device

Found = TypeVar("Found")

DEATH_SHOWS_WITHIN_S = 2.0


class RankFailed(Exception):
    """A rank raised, died or did not finish in time.

    rank: one that a signal killed, otherwise the first. text: its traceback or one sentence.
    """

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(f"rank {rank}: {text}")
        self.rank = rank
        self.text = text


def in_gloo_ranks(world: int, work: Callable[[int, int], Found], timeout: float) -> list[Found]:
    """Calls work(rank, world) on W forked ranks; returns their results by rank. All ranks have ended afterwards.

    timeout: seconds in total. A result must be something that `torch.save` accepts.

    Raises:
        RankFailed: a rank raised, died or did not finish in time.
    """
    context = multiprocessing.get_context("fork")
    deadline = time.monotonic() + timeout
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        results = [Path(folder, f"result{rank}") for rank in range(world)]
        ranks: list[BaseProcess] = []
        try:
            for rank in range(world):
                forked = context.Process(target=_rank, args=(rank, world, results[rank], work), daemon=True)
                forked.start()
                ranks.append(forked)
            running: dict[Any, int] = {process.sentinel: rank for rank, process in enumerate(ranks)}
            while running:
                ended = wait(list(running), max(0.0, deadline - time.monotonic()))
                if not ended:
                    raise RankFailed(min(running.values()), f"did not finish within {timeout:g} s")
                for rank in sorted(running.pop(sentinel) for sentinel in ended):
                    if not results[rank].exists():
                        raise _failure(rank, ranks, results[rank])
        finally:
            for process in ranks:
                process.kill()
                process.join()
        return [torch.load(result, weights_only=False) for result in results]


def _failure(failed: int, ranks: Sequence[BaseProcess], result: Path) -> RankFailed:
    """The rank that a signal killed, if there is one: its peers may report the lost connection before it has ended."""
    until = time.monotonic() + DEATH_SHOWS_WITHIN_S
    for rank, process in enumerate(ranks):
        process.join(max(0.0, until - time.monotonic()))
        if (code := process.exitcode or 0) < 0:
            return RankFailed(rank, f"died of signal {-code}")
    error = result.with_suffix(".error")
    return RankFailed(failed, error.read_text() if error.exists() else "ended early")


def _rank(rank: int, world: int, result: Path, work: Callable[[int, int], object]) -> None:
    gc.freeze()  # collecting the copied objects would take a third of a short test, and copy their pages
    try:
        torch.set_num_threads(1)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # as in sandbox.rank.launcher
        Device().join(rank, world, str(result.parent))
        dist.barrier()  # a rank that ends at once would break connections that its peers are still making
        unfinished = result.with_suffix(".part")
        torch.save(work(rank, world), unfinished)
        unfinished.rename(result)
    except BaseException:
        result.with_suffix(".error").write_text(traceback.format_exc())
    os._exit(0)  # no clean-up of what the fork copied
