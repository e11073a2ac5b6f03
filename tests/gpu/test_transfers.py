"""Transfers between two real GPUs: every way is measured, or absent with a reason, and none is slower than a network."""

import asyncio
from pathlib import Path

import pytest

from arena.paths import paths_in
from arena.runs.engine import Engine
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from sandbox.protocol.result import Transfers, gigabytes_per_second

pytestmark = [pytest.mark.gpu, pytest.mark.peers, pytest.mark.timeout(120)]

ALWAYS = ["copy engine", "SM stores", "SM loads", "TMA", "NCCL"]


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
