"""The calls in a row of a profile on GPUs: ranks make them when told to, and the driver counts from outside meanwhile."""

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

ROW_S, MOST_CALLS = 0.4, 20_000
"""How long calls are made in a row, and how many at the most."""
ROW_LIMIT_S = 20.0
"""For a row, from its order."""


def counted_row(
    controls: Sequence[socket.socket], gpus: Sequence[RankGpu], deadline: float
) -> Outside | None:
    """Waits until all ranks are warm, has them make calls in a row, and counts. Then they may go on.

    controls: by rank. deadline: on the monotonic clock, for the ranks to be warm. None where a rank ended before the end of
    its row, or did not come to it in time.
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
    """How many calls, from what the ranks say that one takes in seconds; whatever they say, it ends."""
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
    """A figure of every rank; None where one hung up, or said nothing in time."""
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
    """Whether all ranks are still there to be told."""
    try:
        for control in controls:
            control.sendall(TOLD.pack(number))
    except ConnectionError:
        return False
    return True
