"""File descriptors exchanged between real ranks."""

import contextlib
import os

import pytest
import torch.distributed as dist

from sandbox.kit import errors
from sandbox.kit.symmetric_memory import device_heap


def everybody_reads_everybody(rank: int, world: int) -> None:
    store = dist.distributed_c10d._get_default_store()
    mine = os.memfd_create("mine")
    os.write(mine, f"rank {rank}".encode())
    found = device_heap.exchange(rank, world, store, "test/first", mine, 10.0)
    assert found[rank] == mine
    assert [os.pread(fd, 100, 0).decode() for fd in found] == [f"rank {peer}" for peer in range(world)]
    again = device_heap.exchange(rank, world, store, "test/second", found[(rank + 1) % world], 10.0)
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
        with pytest.raises(errors.BarrierTimeout, match="did not share their memory") as caught:
            device_heap.exchange(rank, world, store, "test", os.memfd_create("mine"), 0.5)
        assert 1 in caught.value.missing
        assert [kind for kind in opened() if kind not in before] == ["/memfd:mine (deleted)"]


def test_whoever_does_not_come_is_named_and_nothing_stays_open(worlds):
    worlds.run(one_does_not_come, 3)
