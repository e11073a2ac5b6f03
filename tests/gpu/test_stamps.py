"""Stamps on a real GPU: when they are recorded, how far apart they are, of which block, and how many are kept."""

from typing import Any

import pytest

from sandbox.kit import errors
from sandbox.kit.compilers import nvrtc, stamps
from sandbox.kit.cuda import exported

RESOLUTION_NS = 2_000
"""Tolerance for the GPU's clock, which advances in steps of up to 1 µs."""
LATE_NS = 40_000
"""Maximum median delay of a stamp: the atomic addition before it, and a step of the clock."""


@pytest.fixture(scope="module")
def of_one(one_gpu: Any) -> dict[str, Any]:
    """The stamps of a single rank; see `stamps_of_one`."""
    return _found(one_gpu, one_gpu.ranks.stamps_of_one, 1)[0]


def _found(one_gpu: Any, function: Any, world: int) -> list[Any]:
    try:
        found: list[Any] = one_gpu.run(function, world, timeout_s=80.0).result(timeout=110)
    except BaseException:
        print(one_gpu.printed())
        raise
    return found


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


@pytest.mark.gpu
def test_no_stamp_is_taken_unasked(of_one):
    assert of_one["before take"] == []


@pytest.mark.gpu
def test_stamps_are_as_far_apart_as_kernel_waits(one_gpu, of_one):
    apart = []
    for stamped in of_one["waits_ns"]:
        assert [(block, number) for _, block, number in stamped] == [(0, 0), (0, 1)], stamped
        apart.append(stamped[1][0] - stamped[0][0])
    print(f"{one_gpu.ranks.WAIT_NS} ns are {apart}")
    assert min(apart) >= one_gpu.ranks.WAIT_NS - RESOLUTION_NS
    assert _median(apart) <= one_gpu.ranks.WAIT_NS + LATE_NS


@pytest.mark.gpu
def test_stamps_agree_with_events_about_a_wait(of_one):
    off = []
    for between_events, stamped in of_one["waits_cycles"]:
        assert [number for _, _, number in stamped] == [2, 3], stamped
        off.append(between_events - (stamped[1][0] - stamped[0][0]))
    times = [between_events for between_events, _ in of_one["waits_cycles"]]
    print(f"between events {times} ns, stamps are shorter by {off} ns")
    assert min(times) > 500_000  # 2 000 000 cycles at less than 4 GHz
    assert min(off) >= -RESOLUTION_NS  # stamps lie between the events
    assert _median(off) <= LATE_NS


@pytest.mark.gpu
def test_stamps_are_found_on_the_hosts_clock(of_one):
    begun, stamped, ended, unsure = of_one["on the host's clock"]
    print(f"stamps at {[ns - begun for ns in stamped]} ns of {ended - begun}, known to {unsure} ns")
    assert unsure < 1_000_000
    assert begun - unsure - RESOLUTION_NS <= stamped[0] < stamped[1] <= ended + unsure + RESOLUTION_NS


@pytest.mark.gpu
def test_kept_stamps_are_bounded(one_gpu, of_one):
    kept = of_one["overflow"]
    assert len(kept) == stamps.ROOM
    assert len({block for _, block, _ in kept}) == stamps.ROOM  # no block twice
    assert all(number == 7 + block for _, block, number in kept)
    assert max(block for _, block, _ in kept) < stamps.ROOM + 1000
    assert max(ns for ns, _, _ in kept) - min(ns for ns, _, _ in kept) < 1_000_000_000
    assert of_one["behind the ring"] == [one_gpu.ranks.GUARD_WORD] * one_gpu.ranks.GUARD
    after = sorted((block, number) for _, block, number in of_one["after overflow"])
    assert after == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.gpu
@pytest.mark.parametrize("world", [2, 4])
def test_nobody_leaves_a_barrier_before_all_have_arrived(one_gpu, world):
    """One GPU has one clock, so stamps of its ranks can be compared."""
    found = _found(one_gpu, one_gpu.ranks.stamps_of_barriers, world)
    early = []
    for barrier, ranks in enumerate(zip(*found, strict=True)):
        assert all([number for _, _, number in stamped] == [4, 5] for stamped in ranks), ranks
        last_arrived, first_left = (max(stamped[0][0] for stamped in ranks), min(stamped[1][0] for stamped in ranks))
        if first_left < last_arrived - RESOLUTION_NS:
            early.append((barrier, last_arrived - first_left))
    assert len(found[0]) == one_gpu.ranks.BARRIERS
    assert not early, f"(barrier, ns too early): {early}"


def test_the_kernels_of_these_tests_compile(one_gpu):
    try:
        nvrtc.binding()
    except errors.CompileError as missing:
        pytest.skip(str(missing))
    ranks = one_gpu.ranks
    cubin = nvrtc.to_cubin(ranks.STAMPED, "sm_90a", (stamps.OPTION, f"-DPX_TIMEOUT_MS={ranks.WAIT_MS}"))
    assert b"px_stamp_ring" in cubin
    assert {f.name for f in exported(ranks.STAMPED).values()} == {"waits_ns", "waits_cycles", "every_block", "barriers"}
