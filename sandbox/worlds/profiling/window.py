"""Runs calls in a row on the GPUs of a profile and reads the driver's counters meanwhile."""

import math
import select
import socket
import time
from collections.abc import Sequence

from sandbox.machine import nvml
from sandbox.machine.gpu_counters import GpuCounters
from sandbox.machine.nvml import NvmlMissing
from sandbox.machine.placement import RankGpu
from sandbox.protocol.profile import SAID, TOLD, Outside

ROW_S, MOST_CALLS = 0.8, 40_000
"""Length of a row of calls in seconds, and its most calls. The energy counters change every 0.1 s."""
ROW_LIMIT_S = 20.0
"""Limit from the order for a row to its end."""


def counted_row(controls: Sequence[socket.socket], gpus: Sequence[RankGpu], deadline: float) -> Outside | None:
    """Waits until all ranks are warm, starts a row of calls, and reads the counters over it.

    controls: sockets by rank. deadline: when the ranks must be warm, in time.monotonic. Returns None if a rank ended or
    was too slow.
    """
    said = _hear(controls, deadline)
    if said is None:
        return None
    calls = calls_in_row(said)
    missing: list[str] = []
    counters = _begun(gpus, missing)
    started = time.monotonic()
    if not _tell(controls, calls) or _hear(controls, started + ROW_LIMIT_S) is None:
        return None
    seconds = time.monotonic() - started
    counted = []
    if counters is not None:
        try:
            counted = counters.end()
        except NvmlMissing as refused:
            missing.append(f"nothing that the driver counts: {refused}")
    return Outside(calls, seconds, counted, missing) if _tell(controls, 0) else None


def calls_in_row(said: Sequence[float]) -> int:
    """The number of calls of a row, from the ranks' untrusted seconds per call."""
    slowest = max((value for value in said if math.isfinite(value)), default=0.0)
    return max(1, min(MOST_CALLS, int(ROW_S / max(slowest, 1e-7))))


def _begun(gpus: Sequence[RankGpu], missing: list[str]) -> GpuCounters | None:
    try:
        by_minor = {gpu.minor: gpu for gpu in nvml.gpus()}
        counters = GpuCounters([by_minor[gpu.minor] for gpu in gpus])
        counters.begin()
    except NvmlMissing as refused:
        missing.append(f"nothing that the driver counts: {refused}")
        return None
    return counters


def _hear(controls: Sequence[socket.socket], deadline: float) -> list[float] | None:
    """Receives a number from every rank. Returns None if a rank is gone or too slow."""
    texts = dict.fromkeys(controls, b"")
    while waiting := [control for control in controls if len(texts[control]) < SAID.size]:
        ready, _, _ = select.select(waiting, [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        for control in ready:
            try:
                piece = control.recv(SAID.size - len(texts[control]))
            except ConnectionError:
                return None
            if not piece:
                return None
            texts[control] += piece
    return [float(SAID.unpack(texts[control])[0]) for control in controls]


def _tell(controls: Sequence[socket.socket], number: int) -> bool:
    """Sends a number to every rank. Returns False if a rank is gone."""
    try:
        for control in controls:
            control.sendall(TOLD.pack(number))
    except ConnectionError:
        return False
    return True
