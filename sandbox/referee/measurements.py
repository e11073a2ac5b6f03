"""Measurements of this machine in the oracle world: peaks, and transfers between ranks."""

from typing import Protocol, TypeVar

from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Calibrated, Setting, TransfersTimed
from sandbox.protocol.messages import MeasurePeaks, MeasureTransfers, Order, PeaksMeasured, Reply, TransfersMeasured
from sandbox.protocol.result import Transfers, joined
from sandbox.referee.awaiting import SettingRefused, Stopped
from sandbox.worlds import deadlines
from sandbox.worlds.failures import Deadline, HarnessFailed, WorldFailed

R = TypeVar("R", bound=Reply)
UNMEASURED = (HarnessFailed, SettingRefused, WorldFailed, Deadline, Stopped, OSError)
"""The exceptions of a measurement that fails."""
OPTIONAL_WAYS = "NCCL device and NVSHMEM"
"""Names of the ways to move data that need optional libraries."""


class Ask(Protocol):
    """The oracle world's replies by rank with nothing else running, and their seconds. Raises one of UNMEASURED."""

    def __call__(self, order: Order, reply: type[R], limit: float) -> tuple[list[R], float]: ...


def calibrated(setting: Setting, ask: Ask) -> Calibrated:
    """The peaks of the slowest rank."""
    measured, seconds = ask(MeasurePeaks(), PeaksMeasured, deadlines.PREPARE)
    peaks = {
        name: (max if name.endswith(("_us", "_ms")) else min)(rank.peaks[name] for rank in measured)
        for name in measured[0].peaks
    }
    return Calibrated(world=setting.world, device=setting.device, peaks=peaks, seconds=seconds)


def transfers_timed(setting: Setting, ask: Ask) -> TransfersTimed:
    """Times transfers between the ranks. A fault in an optional library does not lose the other times."""
    measured, seconds = ask(MeasureTransfers(), TransfersMeasured, deadlines.PREPARE)
    found = joined([reply.transfers for reply in measured])
    if kind_of(setting.device).on_gpus:
        try:
            more, longer = ask(MeasureTransfers(backends=True), TransfersMeasured, deadlines.BACKENDS)
        except Stopped:
            raise
        except UNMEASURED as error:
            found = found.beside(Transfers(found.sizes, [], {OPTIONAL_WAYS: str(error).strip().rpartition("\n")[-1]}))
        else:
            found, seconds = found.beside(joined([reply.transfers for reply in more])), seconds + longer
    return TransfersTimed(world=setting.world, device=setting.device, transfers=found, seconds=seconds)
