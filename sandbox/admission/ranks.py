"""Runs a function on W forked ranks with a gloo process group, without jail, arenas and clock."""

import gc
import io
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
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
    ranks = []
    found: dict[int, Found] = {}
    waiting: dict[Connection, int] = {}
    deadline = time.monotonic() + timeout
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        try:
            for rank in range(world):
                receiving, sending = context.Pipe(duplex=False)
                process = context.Process(target=_rank, args=(rank, world, folder, work, sending), daemon=True)
                process.start()
                sending.close()  # the pipe ends with the rank, which has the only copy
                ranks.append(process)
                waiting[receiving] = rank
            while waiting:
                ready = wait(list(waiting), max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise RankFailed(min(waiting.values()), f"did not finish within {timeout:g} s")
                for pipe in ready:
                    assert isinstance(pipe, Connection)
                    rank = waiting.pop(pipe)
                    with pipe:
                        found[rank] = _received(pipe, rank, ranks)
        finally:
            for process in ranks:
                process.kill()
                process.join()
            for pipe in waiting:
                pipe.close()
    return [found[rank] for rank in range(world)]


def _received(pipe: Connection, rank: int, ranks: Sequence[BaseProcess]) -> Any:
    try:
        error: str = pipe.recv()
        result = b"" if error else pipe.recv_bytes()
    except EOFError:
        ranks[rank].join(1.0)
        code = ranks[rank].exitcode or 0
        error = f"died of signal {-code}" if code < 0 else "ended early"
    if error:
        raise _cause(RankFailed(rank, error), ranks)
    return torch.load(io.BytesIO(result), weights_only=False)


def _cause(failed: RankFailed, ranks: Sequence[BaseProcess]) -> RankFailed:
    """The rank that a signal killed, if there is one: its peers may report the lost connection before its pipe ends."""
    until = time.monotonic() + DEATH_SHOWS_WITHIN_S
    for rank, process in enumerate(ranks):
        process.join(max(0.0, until - time.monotonic()))
        if (code := process.exitcode or 0) < 0:
            return RankFailed(rank, f"died of signal {-code}")
    return failed


def _rank(rank: int, world: int, folder: str, work: Callable[[int, int], object], sending: Connection) -> None:
    gc.freeze()  # collecting the copied objects would take a third of a short test, and copy their pages
    try:
        torch.set_num_threads(1)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # as in sandbox.rank.launcher
        Device().join(rank, world, folder)
        dist.barrier()  # a rank that ends at once would break connections that its peers are still making
        result = io.BytesIO()
        torch.save(work(rank, world), result)
        sending.send("")
        sending.send_bytes(result.getbuffer())
    except BaseException:
        sending.send(traceback.format_exc())
    os._exit(0)  # no clean-up of what the fork copied
