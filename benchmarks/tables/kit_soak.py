"""A table of the kit's blocks, each called very often with random sizes, roots and delays, with every result compared.

The judge compares every call of a run, but a run has only some hundred calls. A race that shows once in ten thousand
calls shows here.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence

import msgspec

from arena.errors import UsageError
from arena.machine.facts import choose_device, visible_gpus
from arena.settings import Settings
from arena.words.table import Column, TextTable
from benchmarks.kit_soak import BLOCKS, DEVICE_BLOCKS
from benchmarks.plain_loop.messages import SoakBlock
from benchmarks.plain_ranks import PlainLoopFailed, PlainRanks
from benchmarks.tables.scope import Conclusion, Scope, Tell
from sandbox.machine.devices import kind_of

THOUSANDS_ON_CPUS, THOUSANDS_ON_GPUS = 2, 100
"""Thousands of calls per block."""
CALLS_ON_CPUS, CALLS_ON_GPUS = 1000, 5000
"""Calls of one order. Each order draws inputs and expected results anew, which takes the longest on GPUs."""
CPU_RANKS = 2


class SoakRow(msgspec.Struct, frozen=True, kw_only=True):
    """One block."""

    block: str
    world: int
    device: str
    calls: int
    """Calls that ended."""
    wrong: int
    """Wrong elements on all ranks."""
    first_wrong: int = -1
    """A wrong call, or one up to 64 calls before it; -1: no call was wrong."""
    detail: str = ""
    """Why the block could not be called further."""
    seed: int = 0
    seconds: float = 0.0

    @property
    def sound(self) -> bool:
        """Whether all calls ended and each was right."""
        return not self.wrong and not self.detail


def _told(row: SoakRow) -> str:
    where = f"first in the 64 calls from {row.first_wrong} on" if row.wrong else ""
    return ", ".join(part for part in (where, row.detail) if part)


TABLE: TextTable[SoakRow] = TextTable(
    (
        Column("block", lambda row: row.block, 16),
        Column("device", lambda row: row.device, 6),
        Column("W", lambda row: str(row.world), 2, right=True),
        Column("calls", lambda row: str(row.calls), 8, right=True),
        Column("wrong", lambda row: str(row.wrong), 8, right=True),
        Column("seconds", lambda row: f"{row.seconds:.1f}", 7, right=True),
        Column("µs a call", lambda row: f"{row.seconds / max(row.calls, 1) * 1e6:.0f}", 9, right=True),
        Column("", _told),
    )
)


async def measure(scope: Scope, tell: Tell, rows: list[SoakRow]) -> None:
    """Calls each block very often, in one set of ranks.

    scope.blocks: those that run (none: all); scope.repetitions: thousands of calls per block.

    Raises:
        UsageError: there is no such block on these devices.
        MachineError: GPUs were requested and are missing, or the ranks do not start.
    """
    device = choose_device(scope.device or Settings().device)
    on_gpus = kind_of(device).on_gpus
    world = scope.world or (visible_gpus() if on_gpus else CPU_RANKS)
    thousands = scope.repetitions or (THOUSANDS_ON_GPUS if on_gpus else THOUSANDS_ON_CPUS)
    every = BLOCKS + (DEVICE_BLOCKS if on_gpus else ())
    unknown = [block for block in scope.blocks if block not in every]
    if unknown:
        where = "on CPU ranks" if set(unknown) <= set(DEVICE_BLOCKS) else "in the soak"
        raise UsageError(f"There is no block {', '.join(unknown)} {where}.", f"Choose from: {', '.join(every)}.")
    tell(TABLE.header)
    ranks = PlainRanks(world, device)
    try:
        await ranks.start()
        for block in scope.blocks or every:
            if rows and rows[-1].detail:  # a failed block must not affect the next one
                await ranks.close()
                ranks = PlainRanks(world, device)
                await ranks.start()
            rows.append(await soaked(block, ranks, thousands))
            tell(TABLE.line(rows[-1]))
    finally:
        await asyncio.shield(ranks.close())


async def soaked(block: str, ranks: PlainRanks, thousands: int) -> SoakRow:
    """Calls one block in started ranks. If they fail, the row has the reason, and they cannot be used any more."""
    seed = secrets.randbits(31)
    calls = wrong = 0
    first, detail = -1, ""
    started = time.monotonic()
    at_once = CALLS_ON_GPUS if kind_of(ranks.device).on_gpus else CALLS_ON_CPUS
    try:
        while calls < 1000 * thousands:
            count = min(at_once, 1000 * thousands - calls)
            found = await ranks.soak(SoakBlock(block, calls, count, seed + calls))
            calls += count
            wrong += sum(each.wrong for each in found)
            early = [each.first_wrong for each in found if each.first_wrong >= 0]
            if early and first < 0:
                first = min(early)
    except PlainLoopFailed as error:
        detail = str(error)
    return SoakRow(
        block=block,
        world=ranks.world,
        device=ranks.device,
        calls=calls,
        wrong=wrong,
        first_wrong=first,
        detail=detail,
        seed=seed,
        seconds=time.monotonic() - started,
    )


def conclude(rows: Sequence[SoakRow]) -> Conclusion:
    """Sound if every call of every block ended and was right."""
    unsound = [row.block for row in rows if not row.sound]
    calls = sum(row.calls for row in rows)
    words = f"not right: {', '.join(unsound)}" if unsound else f"all right in {calls} calls of {len(rows)} blocks"
    return Conclusion([words] if rows else [], not unsound)
