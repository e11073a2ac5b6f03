"""Signals and barriers between processes by words in shared memory, in C if there is a compiler, else in Python."""

import ctypes
import functools
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from sandbox.kit.compilers import build, gcc
from sandbox.kit.errors import CompileError
from sandbox.kit.layout import MAX_WORLD, Px, is_before

_SOURCE = (gcc.INCLUDE / "px_host_signals.h").read_text()


class Signals:
    """Signals by shared memory, in Python. Peers are positions in the team. Times are milliseconds.

    It relies on aligned 4-byte stores becoming visible in order, as on x86.
    """

    def barrier(self, px: Px, slot: int, epoch: int, timeout_ms: int) -> int:
        """Waits for the other members. Returns the bit mask of those that did not arrive."""
        others = [(px.rank + step) % px.world for step in range(1, px.world)]
        for peer in others:
            self.signal(px, peer, slot, epoch)
        missing = 0
        for peer in others:
            if not self.wait(px, peer, slot, epoch, 0 if missing else timeout_ms):
                missing |= 1 << peer
        return missing

    def signal(self, px: Px, peer: int, slot: int, value: int) -> None:
        """Sets this rank's word of a slot in a peer's pad."""
        _word(px.sig[peer], slot, px.rank).value = value

    def wait(self, px: Px, peer: int, slot: int, value: int, timeout_ms: int) -> bool:
        """Waits until a peer's word in this rank's pad reaches a value. Returns False after the time limit."""
        word = _word(px.sig[px.rank], slot, peer)
        deadline = time.monotonic() + timeout_ms / 1000
        while is_before(word.value, value):
            if time.monotonic() > deadline:
                return False
            os.sched_yield()
        return True


def host_signals() -> Signals:
    """The fastest implementation on this machine. Compiles a small library, unless this process's parent has loaded it."""
    try:
        return _compiled(_library())
    except (CompileError, OSError):
        return Signals()


@functools.cache
def _library() -> ctypes.CDLL:
    header = (gcc.INCLUDE / "px_cpu.h").read_text()
    name = build.content_key(_SOURCE, header, gcc.fingerprint(), *gcc.FLAGS) + ".so"

    def make(output: Path) -> None:
        gcc.compile_shared(_SOURCE, (), output)

    return ctypes.CDLL(str(build.once(name, make, shown=False)))


def _compiled(library: Any) -> Signals:
    """The functions of px_host_signals.h."""
    word, px = ctypes.c_uint32, ctypes.POINTER(Px)
    barrier, signal, wait = library.px_host_barrier, library.px_host_signal, library.px_host_wait
    barrier.argtypes, barrier.restype = [px, word, word, word], word
    signal.argtypes, signal.restype = [px, ctypes.c_int, word, word], None
    wait.argtypes, wait.restype = [px, ctypes.c_int, word, word, word], ctypes.c_bool
    return cast(Signals, SimpleNamespace(barrier=barrier, signal=signal, wait=wait))


def _word(pad: int, slot: int, sender: int) -> ctypes.c_uint32:
    return ctypes.c_uint32.from_address(pad + 4 * (slot * MAX_WORLD + sender))
