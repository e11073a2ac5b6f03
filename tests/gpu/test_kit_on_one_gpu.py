"""The kit's blocks on ranks that share one GPU by time slices: called for some seconds, every result compared."""

import secrets
from typing import Any

import pytest

from benchmarks.kit_soak import BLOCKS, DEVICE_BLOCKS

SECONDS = {2: 5.0, 4: 3.0}
"""Seconds per block, by world."""
LEAST_CALLS = 50


def soaked(one_gpu: Any, world: int, block: str, device: str, seconds: float) -> None:
    """Fails if a call of the block was wrong or a world did not end."""
    seed = secrets.randbits(31)
    future = one_gpu.run(one_gpu.ranks.soaked, world, block, device, seconds, seed, timeout_s=seconds + 75.0)
    try:
        found = future.result(timeout=115)
    except BaseException:
        print(f"seed {seed}\n{one_gpu.printed()}")
        raise
    calls, wrong = found[0][0], sum(each for _, each, _ in found)
    first = [number for _, _, number in found if number >= 0]
    words = f"{block} on {world} ranks: {calls} calls in {seconds:g} s, {wrong} wrong elements, seed {seed}"
    print(words)
    assert calls >= LEAST_CALLS, words
    assert not wrong, f"{words}, first about call {min(first)}"
    assert not first, words


@pytest.mark.gpu
@pytest.mark.parametrize("block", BLOCKS + DEVICE_BLOCKS)
@pytest.mark.parametrize("world", SECONDS)
def test_a_block_is_right_on_one_gpu(one_gpu, world, block):
    soaked(one_gpu, world, block, "cuda", SECONDS[world])


@pytest.mark.slow
def test_a_block_is_right_on_cpu_ranks(one_gpu):
    soaked(one_gpu, 2, "pushed", "cpu", 0.5)
