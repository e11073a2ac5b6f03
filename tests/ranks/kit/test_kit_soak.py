"""The soak test of the kit: its blocks are right on CPU ranks, and it finds a block with a race."""

import random
import re
import shutil
from pathlib import Path

import cuda_on_cpu as emulation
import pytest
import torch

import sandbox.kit.blocks as blocks_of_kit
from benchmarks.kit_soak import BLOCKS, DEVICE_BLOCKS, block_named, blocks, device_blocks
from benchmarks.kit_soak.soak import Call, pattern, soak, unequal
from benchmarks.tables import kit_soak
from benchmarks.tables.kit_soak import SoakRow, conclude
from sandbox.kit.symmetric_memory.team import Team

CALLS = 24
"""Calls of a block on emulated GPUs."""


def test_the_table_knows_every_block() -> None:
    for names, module in ((BLOCKS, blocks), (DEVICE_BLOCKS, device_blocks)):
        found = re.findall(r"^def (\w+)\(team: Team, .*\) -> Call:", Path(module.__file__).read_text(), re.MULTILINE)
        assert {*found} == {*names}


def on_cpu_ranks(rank: int, world: int) -> dict[str, tuple[int, int]]:
    return {name: soak(block_named(name), 0, 30, seed=5) for name in BLOCKS}


@pytest.mark.slow
def test_the_blocks_are_right_in_every_call(worlds) -> None:
    assert worlds.run(on_cpu_ranks, 3) == [{name: [0, -1] for name in BLOCKS}] * 3


LAUNCHED_BY = {
    "resharded": {"reshard"},
    "exchanged_rows": {"send_rows"},
    "summed": {"add_up_over_ranks"},
    "clipped": {"sum_all", "scale_all"},
    "joined": {"push", "barrier_of_all"},
    "multiplied": {"push", "barrier_of_all"},
    "fanned_out": {"fan_out"},
    "stepped": {"step_slice"},
    "attended": {"attend_to_all", "reshard"},
    "routed": {"route_tokens", "combine_owners", "barrier_of_all"},
    "cut": {"cut_rows", "cut_rows_by_share"},
    "swapped": {"swap"},
    "gathered": {"gather_words"},
    "pushed_by_root": {"push"},
    "recurred": {"recur"},
}
"""The kernels that communicate, by the step (block of the soak) that launches them."""


def test_every_communicating_block_kernel_has_a_step() -> None:
    folder = Path(blocks_of_kit.__path__[0])
    entry = re.compile(
        r'^extern "C" __global__ (?:void )?(?:__launch_bounds__\([^)]*\) )?(?:void )?(\w+)\(\s*Px px', re.MULTILINE
    )
    kernels = {name for path in folder.glob("*.*") for name in entry.findall(path.read_text())}
    assert len(kernels) >= 13
    assert kernels <= set().union(*LAUNCHED_BY.values())


COMPILED_FIRST = {"resharded", "exchanged_rows", "summed", "multiplied", "attended"}
"""Steps whose blocks have a host barrier for the buffers of every new dtype, so that they can compile before it."""


def on_emulated_gpus(rank: int, world: int, step: str) -> tuple[int, int, list[str], list[str]]:
    emulation.forget_blocks()
    emulated = {}
    for module in (blocks, device_blocks):
        emulated |= vars(emulation.as_on_gpus(Path(module.__file__).read_text(), module.__name__))
    # The emulation is slow.
    emulated["cut"].__globals__["ROWS"] = (1, 7)
    emulated["recurred"].__globals__["RECURRED"] = ((1, 1, 1, 7, 5), (2, 2, 1, 9, 3))
    wrong, first = soak(emulated[step], 0, CALLS, seed=5)
    late = sorted(emulation.compiled_late) if step in COMPILED_FIRST else []
    return wrong, first, sorted(LAUNCHED_BY[step] - emulation.launched), late


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation is compiled by g++")
@pytest.mark.parametrize("step", LAUNCHED_BY)
def test_block_is_right_and_launches_on_emulated_gpus(worlds, step: str) -> None:
    # No wrong call, no kernel missing, no kernel compiled while a member may already wait for others in a kernel.
    assert worlds.run(on_emulated_gpus, 2, step) == [[0, -1, [], []]] * 2


def without_barrier(team: Team, number: int, chance: random.Random) -> Call:
    """`staged_sum` without its barrier."""
    parts = [pattern(rank, number, (64, 128), torch.float32, torch.device("cpu")) for rank in range(team.world)]
    expected = sum(parts, torch.zeros(64, 128))

    def call() -> torch.Tensor:
        mine = team.stage(parts[team.rank])
        return unequal(sum(team.peers(mine), torch.zeros(64, 128)), expected)

    return call


def races(rank: int, world: int) -> tuple[int, int]:
    return soak(without_barrier, 0, 300, seed=5)


@pytest.mark.slow
def test_a_barrier_that_is_missing_is_found(worlds) -> None:
    found = worlds.run(races, 2)
    assert sum(wrong for wrong, _ in found) > 0


def test_wrong_or_unfinished_row_is_fault() -> None:
    row = SoakRow(block="pushed", world=2, device="cuda", calls=1000, wrong=3, first_wrong=64)
    lost = SoakRow(block="pushed_by_root", world=2, device="cuda", calls=0, wrong=0, detail="plain rank 1 failed: trap")
    assert not conclude([row, lost]).sound
    assert conclude([row, lost]).lines == ["not right: pushed, pushed_by_root"]
    assert "from 64 on" in kit_soak.TABLE.line(row)
    assert "trap" in kit_soak.TABLE.line(lost)
