"""The starting gate: one page shared by the referee and all ranks of a world.

Word 0 is the release, which every rank's stream waits for. Word 16·(r+1) is rank r's completion, which its stream writes after
the last call. Words hold epochs that only grow, so they are never reset. A rank gains nothing by writing its word early: its
outputs are read at that moment, and its DONE must follow at once.
"""

import mmap
import os
import struct
import time

from sandbox.memory.host import report_page

WORD = 64
_U32 = struct.Struct("<I")


class GatePage:
    """The referee's side of the gate."""

    def __init__(self, ranks: int) -> None:
        """Creates the page. `fd` goes to every rank of the world."""
        self.fd, self.page = report_page(mmap.PAGESIZE)
        self.ranks = ranks
        self.epoch = 0

    def shut(self) -> int:
        """Closes the gate; returns the epoch that streams of the next batch wait for."""
        self.epoch += 1
        return self.epoch

    def open(self) -> int:
        """Releases all ranks at once; returns the time in perf_counter_ns."""
        started = time.perf_counter_ns()
        _U32.pack_into(self.page, 0, self.epoch)
        return started

    def finished(self) -> bool:
        """Whether the last calls of all ranks are done."""
        return all(_U32.unpack_from(self.page, WORD * (rank + 1))[0] >= self.epoch for rank in range(self.ranks))

    def wait(self, seconds: float) -> int | None:
        """Spins until all ranks are finished; returns the time in perf_counter_ns, or None after `seconds`."""
        until = time.perf_counter_ns() + int(seconds * 1e9)
        while not self.finished():
            if time.perf_counter_ns() > until:
                return None
        return time.perf_counter_ns()

    def close(self) -> None:
        """Unmaps the page."""
        self.page.close()
        os.close(self.fd)
