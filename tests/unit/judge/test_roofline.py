"""The bound of a problem on a machine, and speeds that no machine reaches."""

import msgspec
import pytest
from made_machine import MadeMachine

from problems.catalogue import load_catalogue
from sandbox.machine.devices import KINDS
from sandbox.protocol.events import Setting
from sandbox.timing.roofline import Peaks, bound_us

BYTES = 65536
"""Bytes that a rank sends, and receives, in the smallest all-gather. It moves three times as many in its own memory."""


def setting(**changes: object) -> Setting:
    return msgspec.structs.replace(MadeMachine().setting(), **changes)


@pytest.mark.parametrize(
    ("peaks", "limiter", "seconds"),
    [
        (Peaks(1e12, 1e9, 1e12), "memory", 3 * BYTES / 1e9),
        (Peaks(1e12, 1e12, 1e9), "link", BYTES / 1e9),
        (Peaks(1e-9, 1e12, 1e12), "memory", 3 * BYTES / 1e12),  # an all-gather computes nothing
    ],
)
def test_the_slowest_resource_is_the_bound(peaks: Peaks, limiter: str, seconds: float) -> None:
    bound, found = bound_us(setting(), peaks)
    assert found == limiter
    assert bound == pytest.approx(seconds * 1e6)


def test_computing_can_be_the_bound() -> None:
    problem = setting().problem_dir.replace("collective/allgather", "tensor/gemm_allreduce")
    gemm = setting(problem_dir=problem, sizes={"M": 256, "N": 256, "K": 256})
    assert bound_us(gemm, Peaks(1.0, 1e12, 1e12))[1] == "compute"


@pytest.mark.parametrize("number", ["31", "32", "50", "51"])
def test_experts_of_one_rank_count_token_once(number: str) -> None:
    problem = load_catalogue().find(number)
    sizes = problem.presets["production"]
    cost = problem.cost(sizes, 1, "bfloat16")
    mlp = 6 * sizes["M"] * sizes["N"] * sizes["I"]
    assert mlp <= cost.flops < 1.5 * mlp  # the router and low-rank branches are small


def test_peaks_are_those_of_the_run_dtype() -> None:
    measured = {"flops.bfloat16": 1.0, "flops.float32": 2.0, "local": 3.0, "link": 4.0}
    assert Peaks.of(measured, setting(dtype="float16")) == Peaks(1.0, 3.0, 4.0, "made-cpu")
    assert Peaks.of(measured, setting(dtype="float32")) == Peaks(2.0, 3.0, 4.0, "made-cpu")
    assert Peaks.of({"flops.float32": 2.0, "local": 3.0}, setting(dtype="int64")).link == 3.0


def test_machine_is_known_once_fully_measured() -> None:
    assert Peaks(1.0, 1.0, 1.0).known
    assert not Peaks(1.0, 0.0, 1.0).known
    assert not Peaks.of({}, setting()).known


@pytest.mark.parametrize("device", ["cpu", "cuda", "made-gpu"])
def test_impossible_lies_far_beyond_any_device(device: str) -> None:
    measured = Peaks(1.0, 1.0, 1.0, device).impossible()
    assert (measured.flops, measured.local, measured.link) == (4.0, 16.0, 8.0)
    never = Peaks(device=device).impossible()
    assert never.flops == KINDS[device].out_of_reach[0]
    assert never.known
