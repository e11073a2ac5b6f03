"""A problem frees its memory before the next one opens: two that fill most of a GPU run in one session.

And transfers between two real GPUs: every way is measured, or absent with a reason, and none is slower than a network.
"""

import asyncio
import os
from pathlib import Path

import pytest

from arena.paths import paths_in
from arena.runs.engine import Engine
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.workspace.named_kernels import BASELINE
from problems.catalogue import load_catalogue
from sandbox.protocol.messages import MakeArenas, SlotLayout
from sandbox.protocol.result import Transfers, gigabytes_per_second
from sandbox.protocol.verdict import Verdict

pytestmark = pytest.mark.gpu

SLOT = 512 << 20
LEFT = 64 << 20
"""Bytes that torch may keep after a problem was closed."""
UNCLEAR = 512 << 20
"""Bytes by which the driver's count may differ, because of modules loaded meanwhile and other processes."""


def test_large_problems_follow_each_other_in_one_session(judge):
    for problem in ("83", "84"):
        result = judge.run(problem, "", name=BASELINE, preset="production", rounds=1)
        assert result.verdict is Verdict.PASS, f"{problem}: {result.verdict}: {result.detail}"


def test_closed_problem_leaves_no_memory_in_rank():
    import torch

    from sandbox.rank.devices.cuda.device import CudaDevice
    from sandbox.rank.trusted_arenas import TrustedArenas

    torch.cuda.set_device(0)
    device = CudaDevice(0)
    torch.ones(256, 256, device="cuda") @ torch.ones(256, 256, device="cuda")  # loads context and cuBLAS, which stay
    device.free_cache()
    before, _ = torch.cuda.mem_get_info(0)
    arenas = TrustedArenas(device)
    layout = SlotLayout(SLOT, SLOT, 16, 2, device.can_seal())
    made = [arenas.make(MakeArenas(layout, own=side == 0, side=side, shared=False)) for side in (0, 1)]
    # The output arenas as reference ranks have them: mapped here, and never released one by one.
    mapped = [device.map_output(fds[1], SLOT * 2) for fds in made if layout.sealed]
    for fds in made:
        for fd in fds:
            os.close(fd)
    arenas.take(0, 0, 2)
    kept = torch.ones(1 << 28, device="cuda") * 2
    used, _ = torch.cuda.mem_get_info(0)
    assert before - used > 4 * SLOT
    del kept, mapped
    arenas.clear()
    device.release_all()
    device.free_cache()
    assert torch.cuda.memory_reserved(0) < LEFT
    after, _ = torch.cuda.mem_get_info(0)
    assert before - after < UNCLEAR
    device.release_all()  # a second call has nothing to unmap


ALWAYS = ["copy engine", "SM stores", "SM loads", "TMA", "NCCL"]


@pytest.mark.peers
@pytest.mark.timeout(120)
def test_way_between_gpus_is_measured_or_has_reason(tmp_path: Path) -> None:
    setting = choose_setting(load_catalogue().find("allreduce"), Choice(device="cuda", world=2), Settings())

    async def timed() -> Transfers:
        async with Engine(paths_in(tmp_path)) as engine:
            return (await engine.time_transfers(setting)).transfers

    found = asyncio.run(timed())
    (pair,) = found.pairs
    assert pair.ranks == (0, 1)
    assert list(pair.us)[: len(ALWAYS)] == ALWAYS
    assert {*pair.us, *found.absent} == {*ALWAYS, "NCCL device", "NVSHMEM"}, found.absent
    assert all(found.absent.values())
    assert found.sizes[0] == 2 << 10
    assert found.sizes[-1] == 256 << 20
    for way, times in pair.us.items():
        assert 1 < gigabytes_per_second(found.sizes[-1], times[-1]) < 10_000, way
