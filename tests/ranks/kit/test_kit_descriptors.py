"""Real ranks exchange file descriptors, and agree before a collective NCCL call. NCCL itself needs GPUs."""

import contextlib
import os

import pytest
import torch
import torch.distributed as dist

from sandbox.kit import errors, nccl
from sandbox.kit.errors import BackendError, BarrierTimeout
from sandbox.kit.symmetric_memory.heap import exchange


def everybody_reads_everybody(rank: int, world: int) -> None:
    store = dist.distributed_c10d._get_default_store()
    mine = os.memfd_create("mine")
    os.write(mine, f"rank {rank}".encode())
    found = exchange(rank, world, store, "test/first", mine, 10.0)
    assert found[rank] == mine
    assert [os.pread(fd, 100, 0).decode() for fd in found] == [f"rank {peer}" for peer in range(world)]
    again = exchange(rank, world, store, "test/second", found[(rank + 1) % world], 10.0)
    assert [os.pread(fd, 100, 0).decode() for fd in again] == [f"rank {(peer + 1) % world}" for peer in range(world)]


@pytest.mark.parametrize("world", [1, 2, 4])
def test_every_rank_gets_the_descriptor_of_every_rank(worlds, world):
    worlds.run(everybody_reads_everybody, world)


def opened() -> list[str]:
    """The targets of this process's file descriptors."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(found)


def one_does_not_come(rank: int, world: int) -> None:
    store = dist.distributed_c10d._get_default_store()
    before = opened()
    if rank != 1:
        with pytest.raises(errors.BarrierTimeout, match="did not reach its first test call") as caught:
            exchange(rank, world, store, "test/third", os.memfd_create("mine"), 0.5)
        assert 1 in caught.value.missing
        assert [kind for kind in opened() if kind not in before] == ["/memfd:mine (deleted)"]


def test_absent_rank_is_named_and_nothing_stays_open(worlds):
    worlds.run(one_does_not_come, 3)


def agree(rank: int, world: int) -> None:
    nccl._AGREE_S = 2.0
    nccl._agree("window([4], float32)", rank, world)
    with pytest.raises(BackendError, match=r"rank \d for nccl\.window\(\[\d\]\), rank \d for nccl\.window\(\[\d\]\)"):
        nccl._agree(f"window([{rank}])", rank, world)
    nccl._agree("devcomm(lsa_barriers=8)", rank, world)
    if rank == 0:
        with pytest.raises(BarrierTimeout, match=r"rank 1 did not ask for nccl\.devcomm") as late:
            nccl._agree("devcomm(lsa_barriers=16)", rank, world)
        assert late.value.missing == (1,)


def test_ranks_that_ask_for_different_things_are_named(worlds):
    worlds.run(agree, 2)


def refuse(rank: int, world: int) -> None:
    for ask in (lambda: nccl.window(4, torch.float32), lambda: nccl.devcomm(lsa_barriers=1)):
        with pytest.raises(BackendError, match="needs GPU ranks"):
            ask()
    assert nccl.world() == world


def test_cpu_ranks_are_refused(worlds):
    worlds.run(refuse, 1)
