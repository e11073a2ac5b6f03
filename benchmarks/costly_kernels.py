"""Kernels that are a problem's baseline with a known cost added, as text: a busy wait of the host, or of the device."""

import re

from arena.errors import UsageError
from problems.specification import Problem

HOST, DEVICE = "host", "device"
COSTS = (HOST, DEVICE)

_ADDED = re.compile(r"added (\d+\.\d+) us")

_HOST = '''

# --- the cost that is added ---

import time as _time


def solution(*arguments):
    """The baseline, then a busy wait of the host for a share of what the baseline's call took."""
    started = _time.perf_counter_ns()
    result = _baseline_solution(*arguments)
    ended = _time.perf_counter_ns()
    until = ended + (ended - started) * {share!r}
    while _time.perf_counter_ns() < until:
        pass
    return result
'''

_DEVICE = '''

# --- the cost that is added ---

import torch as _torch

_WANTED_US = {added_us!r}
_FEW, _MANY, _WARM, _REPEATS = 1_000, 41_000, 40_000_000, 64
_cycles = None


def _added_us(cycles):
    """Microseconds that one sleep of so many cycles adds to a stream, its launch included."""
    first, last = (_torch.cuda.Event(enable_timing=True) for _ in range(2))
    _torch.cuda._sleep(4_000_000)  # all that follows is queued meanwhile
    first.record()
    for _ in range(_REPEATS):
        _torch.cuda._sleep(cycles)
    last.record()
    last.synchronize()
    return first.elapsed_time(last) * 1e3 / _REPEATS


def _calibrate():
    """Finds the cycles that add what is wanted; a launch alone takes a microsecond or two. Says what they do add."""
    _torch.cuda._sleep(_WARM)  # the clocks go up
    _added_us(_FEW)
    few, many = _added_us(_FEW), _added_us(_MANY)
    cycles = max(1, round(_FEW + (_WANTED_US - few) * (_MANY - _FEW) / (many - few)))
    print(f"added {{_added_us(cycles):.3f}} us", flush=True)
    return cycles


def solution(*arguments):
    """The baseline, then a busy wait on the current stream."""
    global _cycles
    result = _baseline_solution(*arguments)
    if _cycles is None:
        _cycles = _calibrate()
    _torch.cuda._sleep(_cycles)
    return result
'''


def with_host_cost(problem: Problem, share: float) -> str:
    """A kernel that calls the baseline and then keeps the host busy for `share` of that call's time.

    If the host limits the time of a call, it takes 1 + share times as long, whatever the core's present speed.
    """
    return _renamed(problem) + _HOST.format(share=share)


def with_device_cost(problem: Problem, added_us: float) -> str:
    """A kernel that keeps the stream busy for `added_us` after each call of the baseline.

    It prints the added time that it measured.
    """
    return _renamed(problem) + _DEVICE.format(added_us=added_us)


def found_added_us(printed: str) -> float | None:
    """The added microseconds on the slowest rank, from what such kernels printed; None if they printed none."""
    found = [float(match) for match in _ADDED.findall(printed)]
    return max(found) if found else None


def _renamed(problem: Problem) -> str:
    """The baseline's text with another name for its solution."""
    text, count = re.subn(r"^def solution\(", "def _baseline_solution(", problem.baseline_source, flags=re.MULTILINE)
    if count != 1:
        raise UsageError(f"the baseline of {problem.id} {problem.slug} has {count} functions named solution")
    return text
