"""Monitors a running agent program until it ends: its output, its time, and the limits of its jail."""

import asyncio
import contextlib
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass

from arena.words.untrusted_text import one_line, printable
from sandbox.jail.memory import AgentUsage

WORDS_BYTES = 4 << 20
"""Maximum bytes of a program's output per attempt; the rest is dropped."""
ERRORS_BYTES = 256 << 10
"""Maximum bytes of a program's stderr that are kept, half of them from its end."""
LAST_WORDS_BYTES = 4000
CHECK_S = 0.25
"""Seconds between two checks of the limits."""
LEAVE_S = 5.0
TIME = "time"
LIMIT = "limit of "
"""First words of the end reason if a limit of the jail was exceeded: "limit of memory: its processes hold ..."."""

_ERROR = re.compile(
    r"^\W*([\w./-]+: )*(\w*(error|exception)|fatal|panic\w*|invalid|no such|cannot|unknown)\b", re.IGNORECASE
)
"""Begins the lines of a program's output that tell an error."""


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended."""

    code: int | None
    """Exit status; None if it was stopped."""
    errors: str
    """Its stderr."""
    last_words: str
    """The end of its stdout."""
    stopped: str = ""
    """Why it was stopped: TIME, LIMIT + its name, or the text of `Watch.enough`. Empty if it exited by itself."""


@dataclass(frozen=True)
class Watch:
    """The limits and listeners of a running program."""

    seconds: float
    """Maximum running time."""
    hear: Callable[[str], None]
    """Receives its stdout, piece by piece."""
    enough: Callable[[], str]
    """Called a few times a second. Returns a reason to stop the program now, or an empty string."""

    async def to_its_end(self, process: asyncio.subprocess.Process, usage: AgentUsage) -> ProgramEnd:
        """Waits until the program ends or is stopped, and kills all its processes. Cancelling stops the program."""
        stdout, stderr = process.stdout, process.stderr
        assert stdout is not None
        assert stderr is not None
        last, first_errors, last_errors = bytearray(), bytearray(), bytearray()
        told = 0

        def said(piece: bytes) -> None:
            nonlocal told
            if told <= WORDS_BYTES:
                self.hear(printable(piece.decode("utf-8", "replace")))
            told += len(piece)
            last.extend(piece)
            del last[:-LAST_WORDS_BYTES]

        def complained(piece: bytes) -> None:
            room = ERRORS_BYTES // 2 - len(first_errors)
            first_errors.extend(piece[:room])
            last_errors.extend(piece[room:])
            if len(last_errors) > ERRORS_BYTES // 2:
                del last_errors[: -ERRORS_BYTES // 2]

        async def ended() -> int:
            await asyncio.gather(_read(stdout, said), _read(stderr, complained))
            return await process.wait()

        ending = asyncio.create_task(ended())
        looking = asyncio.create_task(self._until_stopped(process.pid, usage))
        stopped, code = "", None
        try:
            await asyncio.wait({ending, looking}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                code = ending.result()
            else:
                stopped = looking.result()
        finally:
            looking.cancel()
            # When this process dies, the jail's first process and then all others in it die. That closes the pipes.
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await asyncio.wait({ending, looking}, timeout=LEAVE_S)
            ending.cancel()
        if not stopped and (passed := await asyncio.to_thread(usage.left_behind)):
            stopped = LIMIT + passed
        errors, end = _as_text(first_errors + last_errors), _as_text(last)
        if errors:
            self.hear(f"\n[stderr]\n{errors}\n")
        return ProgramEnd(None if stopped else code, errors, end, stopped)

    async def _until_stopped(self, pid: int, usage: AgentUsage) -> str:
        """Waits for a reason to stop the program, and returns it."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.seconds
        while True:
            left = until - loop.time()
            if left <= 0:
                return TIME
            await asyncio.sleep(min(CHECK_S, left))
            if excess := await asyncio.to_thread(usage.excess, pid):
                return LIMIT + excess
            if reason := self.enough():
                return reason


def how_it_ended(code: int, output: str) -> str:
    """Returns a program's exit status or signal, the first line of its output that tells an error, and the last two."""
    lines = [one_line(line)[:200] for line in output.splitlines() if line.strip()]
    first = next((line for line in lines if _ERROR.search(line)), lines[0] if lines else "")
    last = [line for line in lines[-2:] if line != first]
    number = -code if code < 0 else code - 128  # a shell and the jail exit with 128 + the number of a signal
    ended = f"ended by {signal.Signals(number).name} (signal {number})" if number in set(signal.Signals) else ""
    said = " … ".join(filter(None, [first, *last]))
    return (ended or f"exit status {code}") + (f": {said}" if said else "")


def _as_text(output: bytearray) -> str:
    return printable(output.decode("utf-8", "replace")).strip()


async def _read(stream: asyncio.StreamReader, take: Callable[[bytes], None]) -> None:
    while piece := await stream.read(1 << 16):
        take(piece)
