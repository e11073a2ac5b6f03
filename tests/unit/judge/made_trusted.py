"""The ranks of a simulated oracle world, which answer with the findings of a MadeOracle."""

import os

from made_clock import MadeClock
from made_kernels import MadeKernel, MadeOracle
from made_worlds import ORDER_SECONDS, MadeRanks

from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import (
    ArenasMade,
    BaselineMeasured,
    CheckPoison,
    Compared,
    CompareOutputs,
    Draw,
    DrawAgain,
    Drawn,
    DrawnAgain,
    LookAhead,
    LookedAhead,
    MakeArenas,
    MeasureBaseline,
    MeasurePeaks,
    MeasureTransfers,
    Order,
    OutputsTaken,
    PeaksMeasured,
    PoisonChecked,
    Reply,
    Reveal,
    Revealed,
    SlotTable,
    Sync,
    Synced,
    TakeOutputs,
    TransfersMeasured,
)
from sandbox.worlds.first_process import WorldSpec


class TrustedRanks(MadeRanks):
    """The ranks of the oracle world."""

    def __init__(self, clock: MadeClock, spec: WorldSpec, oracle: MadeOracle) -> None:
        self.oracle = oracle
        super().__init__(clock, spec, oracle.faults, lambda name: (MadeKernel(), 0.0))

    def take_order(self, rank: int, order: Order) -> None:
        reply = self._answer(rank, order)
        if reply is None:
            super().take_order(rank, order)
        else:
            drawing = self.oracle.draw_s * len(order.seeds) if isinstance(order, Draw) else 0.0
            self._reply(rank, order.kind, reply.kind, ORDER_SECONDS + drawing, reply)

    def _fds(self, kind: Kind) -> list[int]:
        count = {Kind.ARENAS_MADE: 1 if self.oracle.lost_fds else 2}.get(kind, 0)
        return [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]

    def _answer(self, rank: int, order: Order) -> Reply | None:
        made = self.oracle
        match order:
            case MeasureBaseline():
                sizes = (made.in_bytes, made.out_bytes, 4)
                return BaselineMeasured(
                    *sizes, made.seconds, made.sealed, made.varies, made.references, order.arena_bytes[0]
                )
            case MakeArenas():
                return ArenasMade()
            case Draw():
                tables = [SlotTable(index, []) for index in range(len(order.seeds))]
                return Drawn(tables, made.touched(rank, order) if order.intact else [])
            case Reveal():
                return Revealed(made.foreign_us(order) if order.watch else 0.0)
            case TakeOutputs():
                return OutputsTaken()
            case CompareOutputs():
                return Compared([made.finding(rank, order, slot) for slot in order.slots])
            case LookAhead():
                return LookedAhead(made.written(rank, order), made.missing(rank, order))
            case DrawAgain():
                return DrawnAgain(made.fits(rank, order))
            case CheckPoison():
                return PoisonChecked(made.touched(rank, order))
            case MeasurePeaks():
                return PeaksMeasured(made.peaks_of(rank))
            case MeasureTransfers():
                return TransfersMeasured(made.transfers_of(rank, order.backends))
            case Sync():
                return Synced(order.number)
        return None
