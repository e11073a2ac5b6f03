"""A description of the machine for prompts: ranks, connections, measured peaks and transfers."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from arena.machine.calibration import in_units, peaks_for
from arena.machine.facts import gpu_details, installed_version
from arena.machine.gpu_topology import GpuPair, topology
from arena.machine.transfers import prompt_lines, stored_transfers
from arena.paths import Paths
from problems.specification import Problem
from sandbox.machine.devices import kind_of
from sandbox.machine.nvml import Gpu, NvmlMissing
from sandbox.protocol.events import Setting
from sandbox.timing.roofline import Peaks, bound_us


def machine_card(setting: Setting, paths: Paths) -> str:
    """Returns the description of the machine. Takes up to a second on GPUs, because it queries the driver."""
    torch = installed_version("torch") or "unknown"
    if not kind_of(setting.device).on_gpus:
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
            *_connections(gpus[: setting.world]),
        ]
    peaks = peaks_for(paths.calibrations, setting)
    if peaks:
        lines += ["", "Measured on this machine, per rank with all ranks busy:", ""]
        lines += [f"- {name.replace('_', ' ')}: {_figure(name, value)}" for name, value in peaks.items()]
    transfers = stored_transfers(paths.calibrations, setting.device, setting.world)
    if transfers is not None:
        lines += ["", *prompt_lines(transfers)]
    return "\n".join(lines)


def least_work(problem: Problem, setting: Setting, paths: Paths) -> str:
    """Describes the least work of one call, and its minimum time if this machine was calibrated."""
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


def _connections(gpus: Sequence[Gpu]) -> list[str]:
    """Describes the connections between these GPUs, rank 0 first; empty if the driver does not answer."""
    if len(gpus) < 2:
        return []
    try:
        found = topology(gpus)
    except NvmlMissing:
        return []
    rank = {gpu.index: rank for rank, gpu in enumerate(gpus)}

    def between(pairs: Sequence[GpuPair], joined: bool) -> str:
        if len(pairs) == len(found.pairs):
            return f"between {'every' if joined else 'any'} two ranks"
        names = [f"{rank[pair.first.index]}-{rank[pair.second.index]}" for pair in pairs]
        return f"between ranks {', '.join(names)}"

    links = "; ".join(
        f"{number or 'no'} links {between(pairs, number > 0)}" for number, pairs in found.by_links().items()
    )
    up = " or ".join(map(str, sorted({links.up for links in found.links})))
    total = f"; a rank has {up} links up in all" if any(found.by_links()) else ""
    no_p2p = [f"not {between(pairs, False)} (reason: {why})" for why, pairs in found.without_p2p().items()]
    return [
        f"NVLink: {links}{total}{', to switches' if total and found.switched else ''}.",
        f"Peer memory: {'; '.join(no_p2p) or 'every rank can read and write that of every other'}.",
    ]
