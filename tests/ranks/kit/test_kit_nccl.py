"""The agreement of ranks before a collective NCCL call. NCCL itself needs GPUs: tests/gpu/test_nccl.py."""

import pytest
import torch

from sandbox.kit import nccl
from sandbox.kit.errors import BackendError, BarrierTimeout


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
