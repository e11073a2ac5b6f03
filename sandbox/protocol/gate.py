"""The starting gate: one page shared by the referee and all ranks of a world.

Word 0 is the release: every rank's stream waits on it. Word 16·(r+1) is rank r's completion, written by its stream after the
last call. Words hold epochs that only grow, so nothing is ever reset. A rank that writes its word early gains nothing: its
outputs are read when the word is seen, and its DONE must follow at once.
"""

import mmap
import os
import struct
import time

from sandbox.memory.host import report_page

WORD = 64
_U32 = struct.Struct("<I")


class GatePage:
    """The referee's side. Imports no torch."""

    def __init__(self, ranks: int) -> None:
        """Makes the page; `fd` goes to every rank of the world."""
        self.fd, self.page = report_page(mmap.PAGESIZE)
        self.ranks = ranks
        self.epoch = 0

    def shut(self) -> int:
        """The epoch of the next batch: streams wait for it."""
        self.epoch += 1
        return self.epoch

    def open(self) -> int:
        """Releases all ranks at once; returns perf_counter_ns of the moment."""
        started = time.perf_counter_ns()
        _U32.pack_into(self.page, 0, self.epoch)
        return started

    def finished(self) -> bool:
        """Whether every rank's last call is done."""
        return all(
            _U32.unpack_from(self.page, WORD * (rank + 1))[0] >= self.epoch for rank in range(self.ranks)
        )

    def wait(self, seconds: float) -> int | None:
        """Spins until all ranks are finished: perf_counter_ns of that moment, or None when it did not come in time."""
        until = time.perf_counter_ns() + int(seconds * 1e9)
        while not self.finished():
            if time.perf_counter_ns() > until:
                return None
        return time.perf_counter_ns()

    def close(self) -> None:
        """Forgets the page."""
        self.page.close()
        os.close(self.fd)
