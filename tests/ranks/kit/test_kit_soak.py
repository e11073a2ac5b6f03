"""The soak of the kit: its blocks are right on CPU ranks, and a block with a race or a wrong result is found."""

import asyncio
import importlib.util
import random
import shutil
from pathlib import Path

import pytest
import torch

from benchmarks.kit_soak import blocks, device_blocks
from benchmarks.kit_soak.soak import pattern, soak, unequal
from benchmarks.tables import kit_soak
from benchmarks.tables.kit_soak import SoakRow, conclude, soaked
from sandbox.kit.symmetric_memory.team import Team


def test_the_table_knows_every_block() -> None:
    assert tuple(blocks.BLOCKS) == kit_soak.BLOCKS
    assert tuple(device_blocks.DEVICE_BLOCKS) == kit_soak.DEVICE_BLOCKS


def on_cpu_ranks(rank: int, world: int) -> dict[str, tuple[int, int]]:
    return {name: soak(block, 0, 100, seed=5) for name, block in blocks.BLOCKS.items()}


@pytest.mark.slow
def test_the_blocks_are_right_in_every_call(worlds) -> None:
    assert worlds.run(on_cpu_ranks, 3) == [{name: [0, -1] for name in blocks.BLOCKS}] * 3


@pytest.mark.slow
def test_a_block_is_soaked_in_ranks_of_its_own() -> None:
    row = asyncio.run(soaked("pushed", 2, "cpu", 1))
    assert row.sound, row
    assert row.calls == kit_soak.CALLS


@pytest.mark.slow
def test_ranks_that_fail_are_a_row_that_says_why() -> None:
    row = asyncio.run(soaked("no such block", 1, "cpu", 1))
    assert not row.sound
    assert "no such block" in row.detail


def on_emulated_gpus(rank: int, world: int, block: str) -> tuple[int, int]:
    path = Path(__file__).parent / "emulated" / "cuda_on_cpu.py"
    spec = importlib.util.spec_from_file_location("cuda_on_cpu", path)
    emulation = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(emulation)
    module = emulation.as_on_gpus(Path(device_blocks.__file__).read_text(), "device_blocks_on_cpu")
    return soak(module.DEVICE_BLOCKS[block], 0, 60, seed=5)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation is compiled by g++")
@pytest.mark.parametrize("block", ["swapped", "gathered", "met"])
def test_a_block_of_gpus_is_right_on_emulated_ones(worlds, block: str) -> None:
    assert worlds.run(on_emulated_gpus, 2, block) == [[0, -1], [0, -1]]


def without_barrier(team: Team, number: int, chance: random.Random) -> torch.Tensor:
    """What `staged_sum` would be with its barrier forgotten."""
    at = torch.device("cpu")
    mine = team.stage(pattern(team.rank, number, (64, 128), torch.float32, at))
    total = sum(team.peers(mine), torch.zeros(64, 128))
    return unequal(
        total, sum((pattern(rank, number, (64, 128), torch.float32, at) for rank in range(team.world)), total * 0)
    )


def races(rank: int, world: int) -> tuple[int, int]:
    return soak(without_barrier, 0, 300, seed=5)


@pytest.mark.slow
def test_a_barrier_that_is_missing_is_found(worlds) -> None:
    found = worlds.run(races, 2)
    assert sum(wrong for wrong, _ in found) > 0
    assert any(first >= 0 for _, first in found)


def test_a_row_that_is_wrong_or_did_not_end_is_a_fault() -> None:
    row = SoakRow(block="pushed", world=2, device="cuda", calls=1000, wrong=3, first_wrong=64)
    lost = SoakRow(block="met", world=2, device="cuda", calls=0, wrong=0, detail="plain rank 1 failed: trap")
    assert not conclude([row, lost]).sound
    assert conclude([row, lost]).lines == ["not right: pushed, met"]
    assert "from 64 on" in kit_soak.TABLE.line(row)
    assert "trap" in kit_soak.TABLE.line(lost)
