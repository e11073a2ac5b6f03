"""Live figures of GPUs: their values through the real pynvml, and the times at which they are read."""

import subprocess
import threading
import time
from collections.abc import Callable

import pytest
from waiting import eventually

from arena.machine import gpu_sampler
from arena.machine.gpu_sampler import KEPT, GpuReading, GpuSampler, slowed_by
from sandbox.machine.nvml import NvmlMissing

READ = """
import time, arena.machine.facts
clock = time.monotonic
arena.machine.facts.device_files = lambda: 4
from arena.machine.gpu_sampler import WorldReader
read = WorldReader(2)
began = clock()
first = read()
after_first = clock()
time.sleep(0.3)
before_second = clock()
second = read()
ended = clock()
assert [reading.nvlink_gb_s for reading in first] == [None, None]
for reading in second:
    print(reading)
    print(reading.nvlink_gb_s)
print((before_second - after_first) / (ended - began))
"""
"""The last line: the ratio of the shortest to the longest possible time between two readings of a GPU."""


@pytest.fixture
def readings(with_driver: Callable[..., "subprocess.CompletedProcess[str]"]) -> Callable[..., list[str]]:
    """readings(NAME=1...): the lines that `READ` prints."""

    def read(**knobs: int) -> list[str]:
        done = with_driver(READ, **knobs)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return read


def test_a_world_is_read_rank_by_rank(readings: Callable[..., list[str]]) -> None:
    # 100 GB/s each way in KiB/s, on rank 1 alone
    one_way = 100 * 10**9 // 1024
    lines = readings(TX_KIB_S_1=one_way, RX_KIB_S_1=one_way, BUSY_0=7, USED_MIB_1=2048, REASONS_1=0x4C)
    assert lines[0] == (
        "GpuReading(used_mib=1024, total_mib=143771, busy=7, sm_mhz=1980, celsius=65, watts=652.3, "
        "nvlink_gb_s=0.0, slowed=())"
    )
    assert lines[2].startswith("GpuReading(used_mib=2048, total_mib=143771, busy=61,")
    assert lines[2].endswith("slowed=('thermal', 'power cap'))")
    sure = float(lines[4])
    assert 198 * sure <= float(lines[3]) <= 202 / sure


def test_what_driver_does_not_say_is_left_out(readings: Callable[..., list[str]]) -> None:
    lines = readings(TX_KIB_S=-3, BUSY=-3, POWER=-3, CELSIUS=-3, REASONS=-13, MHZ=-4)
    assert lines[0] == (
        "GpuReading(used_mib=1024, total_mib=143771, busy=None, sm_mhz=None, celsius=None, watts=None, "
        "nvlink_gb_s=None, slowed=())"
    )


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (0x0, ()),
        (0x1 | 0x2 | 0x100, ()),
        (0x4, ("power cap",)),
        (0x8, ("hw slowdown",)),
        (0x8 | 0x40, ("thermal",)),
        (0x20 | 0x40 | 0x4, ("thermal", "power cap")),
        (0x8 | 0x80, ("power brake",)),
    ],
)
def test_why_a_clock_is_low(reasons: int, words: tuple[str, ...]) -> None:
    assert slowed_by(reasons) == words


class Script:
    """A reader that counts its readings, and raises `then` if it is set."""

    def __init__(self) -> None:
        self.count = 0
        self.then: Exception | None = None
        self.threads: set[str] = set()

    def __call__(self) -> list[GpuReading]:
        self.thread = threading.current_thread()
        self.threads.add(self.thread.name)
        if self.then is not None:
            raise self.then
        self.count += 1
        return [GpuReading(used_mib=self.count, total_mib=1)]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    monkeypatch.setattr(gpu_sampler, "PERIOD_S", 0.01)
    return Script()


def test_readings_are_bounded_and_end_with_stop(script: Script) -> None:
    sampler = GpuSampler(1, script)
    sampler.start()
    eventually(lambda: script.count > KEPT + 3)
    sampler.hold(True)
    sampler.stop()
    eventually(lambda: not script.thread.is_alive())
    seen = script.count
    time.sleep(0.1)
    assert script.count == seen
    assert script.threads == {"gpu-sampler"}
    assert [reading.used_mib for (reading,) in sampler.samples] == list(range(seen - KEPT + 1, seen + 1))


def test_driver_that_stops_answering_is_asked_no_more(script: Script) -> None:
    sampler = GpuSampler(1, script)
    sampler.start()
    eventually(lambda: script.count > 2)
    script.then = NvmlMissing("nvmlDeviceGetMemoryInfo: GPU is lost")
    eventually(lambda: sampler.trouble != "")
    assert sampler.trouble == "nvmlDeviceGetMemoryInfo: GPU is lost"
    eventually(lambda: not any(thread.name == "gpu-sampler" for thread in threading.enumerate()))
