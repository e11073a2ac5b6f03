"""The machine in the words of a prompt: what the ranks are, how they are connected, what was measured."""

import os
import shutil
import subprocess
from pathlib import Path

from arena.calibration import in_units, peaks_for
from arena.foreign_text import printable
from arena.machine import gpu_details, installed_version
from arena.paths import Paths
from problems.specification import Problem
from sandbox.events import Setting
from sandbox.roofline import Peaks, bound_us

_QUERY_S = 10.0
_TOPOLOGY_CHARACTERS = 4000


def machine_card(setting: Setting, paths: Paths) -> str:
    """What a kernel author needs to know. Up to seconds where nvidia-smi has to be asked."""
    torch = installed_version("torch") or "unknown"
    if setting.device == "cpu":
        cores = len(os.sched_getaffinity(0))
        lines = [
            f"CPU ranks: {setting.world} processes on one machine, {_processor()}, {cores} cores for all of them.",
            f"torch {torch}; collectives over gloo; tensors are in ordinary memory; one thread a rank is best.",
            f"{'gcc is there: C++ can be compiled.' if shutil.which('gcc') else 'There is no C++ compiler.'}",
        ]
    else:
        gpus = gpu_details()
        names = sorted({f"{gpu.name}, {gpu.memory_mib // 1024} GiB" for gpu in gpus}) or ["unknown"]
        lines = [
            f"GPU ranks: {setting.world} of {len(gpus) or 'some'} GPUs of one host, one rank each: {'; '.join(names)}.",
            f"torch {torch}; collectives over NCCL.",
        ]
        if topology := _topology():
            lines += ["", "```text", topology, "```"]
    peaks = peaks_for(paths.calibrations, setting)
    if peaks:
        lines += ["", "Measured on this machine, per rank with all ranks busy:", ""]
        lines += [f"- {name.replace('_', ' ')}: {_figure(name, value)}" for name, value in peaks.items()]
    return "\n".join(lines)


def least_work(problem: Problem, setting: Setting, paths: Paths) -> str:
    """What one call must do at the least, and how long that takes here if this machine was calibrated."""
    cost = problem.cost(setting.sizes, setting.world, setting.dtype)
    text = (
        f"The least work of one call, per rank: {_amount(cost.flops)} floating-point operations, "
        f"{_amount(cost.local_bytes)} bytes of its own memory, {_amount(cost.sent_bytes)} bytes sent, "
        f"{_amount(cost.received_bytes)} bytes received."
    )
    peaks = Peaks.of(peaks_for(paths.calibrations, setting), setting)
    if peaks.known:
        bound, limiter = bound_us(setting, peaks)
        text += f" On this machine that takes at least {bound:.3g} µs, set by {limiter}."
    return text


def _amount(number: float) -> str:
    return f"{number:.0f}" if number < 1e7 else f"{number:.3g}"


def _figure(name: str, value: float) -> str:
    figure, unit = in_units(name, value)
    return f"{figure:.3g} {unit}"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return "processor unknown"


def _topology() -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    try:
        done = subprocess.run(
            ["nvidia-smi", "topo", "-m"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_QUERY_S,
            check=True,
        )
    except (subprocess.SubprocessError, OSError, UnicodeDecodeError):
        return ""
    return printable(done.stdout).strip()[:_TOPOLOGY_CHARACTERS]
