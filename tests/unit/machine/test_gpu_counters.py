"""Activity of GPUs in a window, counted through the real pynvml with the fake driver."""

import re
import subprocess
from collections.abc import Callable

import pytest

COUNT = """
import time
from sandbox.machine import gpu_counters
from sandbox.machine.nvml import gpus
gpu_counters.SHORTEST_S = {shortest_s}
counters = gpu_counters.GpuCounters(gpus()[:2])
began = time.monotonic()
counters.begin()
shortest = -time.monotonic()
time.sleep({seconds})
shortest += time.monotonic()
found = counters.end()
longest = time.monotonic() - began
for counted in found:
    print(*(moved and moved / longest / 1e9 for moved in (counted.sent, counted.received)), shortest / longest)
    print(counted.sm, counted.tensor, counted.dram)
    print(counted.link_peak and round(counted.link_peak / 1e9), counted.dram_peak and round(counted.dram_peak / 1e9))
    print(*counted.missing, sep="|")
    print(counted.watts, counted.watts_error)
"""
LINES = 5
"""Lines for each GPU. The first: GB/s sent and received over the longest possible window, and the ratio of the shortest
to it."""
KIB_OF_100_GB = 100 * 10**9 // 1024


@pytest.fixture
def counted(with_driver: Callable[..., "subprocess.CompletedProcess[str]"]) -> Callable[..., list[str]]:
    """counted(shortest_s=0.1, NAME=1...): the lines that `COUNT` prints for both GPUs, without those of power."""

    def count(shortest_s: float = 0.1, **knobs: int) -> list[str]:
        done = with_driver(COUNT.format(seconds=0.3, shortest_s=shortest_s), **knobs)
        assert done.returncode == 0, done.stderr
        return [line for at, line in enumerate(done.stdout.splitlines()) if at % LINES != LINES - 1]

    return count


def test_bytes_and_shares_are_counted_gpu_by_gpu(counted: Callable[..., list[str]]) -> None:
    lines = counted(TX_KIB_S_1=KIB_OF_100_GB, RX_KIB_S=2 * KIB_OF_100_GB, METRIC_2=80, METRIC_5_1=0, METRIC_10_1=61)
    sent, received, sure = map(float, lines[4].split())
    assert 99 * sure <= sent <= 101
    assert 198 * sure <= received <= 202
    assert lines[1] == "0.8 0.5 0.5"
    assert lines[5] == "0.8 0.0 0.61"
    assert lines[2] == "478 4917"  # an H200: 18 links, 6144 bits
    assert lines[3] == lines[7] == ""


def test_missing_nvlink_and_missing_monitor_say_so(counted: Callable[..., list[str]]) -> None:
    lines = counted(TX_KIB_S=-3, GPM_0=0, SAMPLE_1=-4, LINK_COUNT=-3, MEMORY_BITS=-3)
    assert lines[0].startswith("None None ")
    assert lines[1:3] == ["None None None", "None None"]
    assert lines[3].startswith("no bytes over NVLink: the driver counts none")
    assert "(GPM): the driver has no such counters for this GPU" in lines[3]
    assert "(GPM): the driver has no such counters for this GPU" in lines[7]


def test_failing_monitor_and_missing_metric_stay_isolated(counted: Callable[..., list[str]]) -> None:
    lines = counted(SAMPLE_0=-999, METRIC_5_1=-3, TX_KIB_S=KIB_OF_100_GB)
    assert lines[1] == "None None None"
    assert "nvmlGpmSampleGet: Unknown Error" in lines[3]
    assert lines[5] == "0.5 None 0.5"
    assert lines[7].endswith("the driver has no value")
    sent, _, sure = lines[0].split()
    assert float(sent) >= 99 * float(sure)


def test_samples_that_are_too_near_say_so(counted: Callable[..., list[str]]) -> None:
    lines = counted(shortest_s=60.0)
    assert lines[1] == "None None None"
    assert "must be 60000 ms apart" in lines[3]


@pytest.fixture
def watts(with_driver: Callable[..., "subprocess.CompletedProcess[str]"]) -> Callable[..., list[str]]:
    """watts(NAME=1...): for each GPU, the line of power and its error, and the line of what is missing."""

    def count(**knobs: int) -> list[str]:
        done = with_driver(COUNT.format(seconds=1.0, shortest_s=0.1), **knobs)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        return [line for at in range(0, len(lines), LINES) for line in (lines[at + 4], lines[at + 3])]

    return count


@pytest.mark.slow
def test_power_is_taken_between_two_steps_of_counter(watts: Callable[..., list[str]]) -> None:
    first, no_reason, second, _ = watts(MILLIWATTS_0=400_000, MILLIWATTS_1=120_000, STEP_MS=50)
    for said, true in ((first, 400), (second, 120)):
        found, error = map(float, said.split())
        assert found == pytest.approx(true, rel=0.15 + error)
    assert no_reason == ""


@pytest.mark.slow
def test_window_with_few_steps_has_no_power(watts: Callable[..., list[str]]) -> None:
    lines = watts(STEP_MS_0=100_000, MILLIWATTS_1=-3)
    assert lines[0] == lines[2] == "None 0.0"
    assert re.fullmatch(r"no energy: \d+\.\d\d s are too short, the counter stepped (once|0 times)", lines[1])
    assert "the driver has no counter" in lines[3]
