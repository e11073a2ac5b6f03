"""One run from its request to its end, for those who wait for it: the verdict, and what the ranks printed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from arena.engine import Engine
from arena.errors import MachineError, UsageError
from arena.foreign_text import printable
from arena.results import RunReport, report
from arena.run_request import RunRequest
from sandbox.events import AnyEvent, Cancelled, Log, Refused, Result

PRINTED_CHARACTERS = 4000


@dataclass(frozen=True)
class Judgement:
    """What came of one run."""

    report: RunReport
    printed: str = ""
    """The beginning of what the ranks printed, with the rank in front of each piece."""


def _nobody(_: AnyEvent) -> None: ...


async def run_to_end(
    engine: Engine, request: RunRequest, listener: Callable[[AnyEvent], None] = _nobody
) -> tuple[Judgement, Result]:
    """Runs a kernel and waits for its verdict. Who is cancelled while waiting cancels the run.

    listener: hears every event until then.

    Raises:
        UsageError: the referee refused the setting.
        MachineError: somebody else cancelled the run, or its journal cannot be begun.
    """
    printed: list[str] = []

    def listen(event: AnyEvent) -> None:
        if isinstance(event, Log) and sum(map(len, printed)) < PRINTED_CHARACTERS:
            printed.append(f"[rank {event.rank}] {printable(event.text)}")
        listener(event)

    unsubscribe = engine.subscribe(listen)
    try:
        run_id = await engine.run(request)
        end = await engine.wait(run_id)
    except asyncio.CancelledError:
        await engine.cancel()
        raise
    finally:
        unsubscribe()
    if isinstance(end, Refused):
        raise UsageError(end.message, end.advice)
    if isinstance(end, Cancelled):
        raise MachineError(f"the run was cancelled in its phase {end.phase}", "start it again")
    text = "".join(printed)[:PRINTED_CHARACTERS]
    return Judgement(report(engine.header(run_id), end.result), text), end.result
