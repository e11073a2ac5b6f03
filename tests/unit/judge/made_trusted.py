"""The ranks of a simulated oracle world, which answer with the findings of a MadeOracle."""

import os
from typing import Any

from made_clock import MadeClock
from made_kernels import MadeKernel, MadeOracle, right
from made_worlds import ORDER_SECONDS, MadeRanks

from sandbox.protocol import messages
from sandbox.protocol.frames import REPLIED, Kind
from sandbox.worlds.first_process import WorldSpec


class TrustedRanks(MadeRanks):
    """The ranks of the oracle world."""

    def __init__(self, clock: MadeClock, spec: WorldSpec, oracle: MadeOracle) -> None:
        self.oracle = oracle
        self.taken: set[int] = set()
        """Sides whose outputs were neither compared nor discarded since they were copied."""
        super().__init__(clock, spec, oracle.faults, lambda name: (MadeKernel(), 0.0))

    def take_order(self, rank: int, order: messages.Order[Any]) -> None:
        if order.kind in REPLIED:
            any_s, call_s = self.oracle.draw_s if isinstance(order, messages.Draw) else (0.0, 0.0)
            drawing = any_s + call_s * len(getattr(order, "seeds", ()))
            self._reply(rank, order.kind, order.kind, ORDER_SECONDS + drawing, self._answer(rank, order))
        else:
            super().take_order(rank, order)

    def _fds(self, kind: Kind) -> list[int]:
        count = {Kind.MAKE_ARENAS: 1 if self.oracle.lost_fds else 2}.get(kind, 0)
        return [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]

    def _answer(self, rank: int, order: messages.Order[Any]) -> Any:
        made = self.oracle
        match order:
            case messages.MeasureBaseline():
                sizes = (made.in_bytes, made.out_bytes, 4)
                return messages.BaselineMeasured(
                    *sizes, made.seconds, made.sealed, made.varies, made.references, order.arena_bytes[0]
                )
            case messages.Draw():
                self.seeds = order.seeds
                tables = [messages.SlotTable(index, made.tensors(rank, index)) for index in range(len(order.seeds))]
                return messages.Drawn(tables, [*made.touched(rank, order), *self.taken] if order.timed else [])
            case messages.TakeOutputs():
                self.taken.add(order.side)
            case messages.Reveal():
                return made.foreign_us(order) if order.watch else 0.0
            case messages.CompareOutputs():
                self.taken.discard(order.side)
                far = [found for slot in order.beside if (found := made.finding(rank, order, slot)) is not right()]
                return [*(made.finding(rank, order, slot) for slot in order.slots), *far]
            case messages.LookAhead():
                return made.written(rank, order)
            case messages.DrawAgain():
                assert 1 << 32 < order.seed < 1 << 64  # a secret one
                assert (
                    order.alone is not None or order.seed % messages.TRIALS == self.seeds[order.slot] % messages.TRIALS
                )
                return made.fits(rank, order)
            case messages.CheckPoison():
                return made.touched(rank, order)
            case messages.MeasurePeaks():
                return made.peaks_of(rank)
            case messages.MeasureTransfers():
                return made.transfers_of(rank, order.backends)
            case messages.Sync():
                return order.number
        return None
