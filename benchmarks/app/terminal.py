"""A program in a pseudo-terminal, the time at which a text was drawn in it, and the delay of its event loop."""

import asyncio
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

GIVE_UP_S = 90.0
SAMPLE_S = 0.005
_LOOK_S = 0.02


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition.

    Raises:
        TimeoutError: it was not met within 90 s.
    """
    async with asyncio.timeout(GIVE_UP_S):
        while not condition():
            await asyncio.sleep(_LOOK_S)


async def lag_while(condition: Callable[[], bool]) -> list[float]:
    """Samples of the seconds by which the loop woke up late, taken one after another while the condition holds."""
    late = []
    while condition():
        asked = time.monotonic() + SAMPLE_S
        await asyncio.sleep(SAMPLE_S)
        late.append(time.monotonic() - asked)
    return late


COLUMNS, LINES = 160, 45


def _take_terminal() -> None:
    """Makes this the controlling terminal of the child, so that closing it hangs up the program."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A program in a pseudo-terminal, and its output so far."""

    def __init__(self, command: list[str], variables: Mapping[str, str] | None = None) -> None:
        """variables: added to this process's environment for the program."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        colours = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, **colours, **(variables or {})},
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509  # one thread here, and an ioctl is all it does
        )
        os.close(slave)
        self.master = master
        self.drawn = b""

    def read(self, seconds: float) -> bytes:
        """Reads output for at most `seconds`; returns the first bytes."""
        if not select.select([self.master], [], [], seconds)[0]:
            return b""
        try:
            got = os.read(self.master, 1 << 16)
        except OSError:  # the other side is closed
            return b""
        self.drawn += got
        return got

    def wait_for(self, text: str, since: float) -> float:
        """Seconds from `since` until `text` was drawn.

        Raises:
            TimeoutError: it was not drawn in time.
        """
        wanted = text.encode()
        while wanted not in self.drawn:
            self.read(0.5)
            if time.monotonic() - since > GIVE_UP_S or self.process.poll() is not None:
                raise TimeoutError(f"the app did not draw {text!r}")
        return time.monotonic() - since

    def quiet(self, seconds: float) -> None:
        """Reads output for `seconds`."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.read(left)

    def read_until(self, wanted: bytes, seconds: float) -> bool:
        """Reads output until it has these bytes, the program has ended or the time is over. Returns whether it has them."""
        deadline = time.monotonic() + seconds
        while wanted not in self.drawn and self.process.poll() is None and time.monotonic() < deadline:
            self.read(0.5)
        return wanted in self.drawn

    def send(self, text: str) -> None:
        """Types a text, whose surrogates are bytes. Reads meanwhile, because a terminal takes only a few KB unread."""
        data = text.encode(errors="surrogateescape")
        while data and self.process.poll() is None:
            if select.select([], [self.master], [], 0.05)[1]:
                data = data[os.write(self.master, data[:512]) :]
            elif self.state() == "T":  # it has stopped itself late after SIGTSTP
                self.process.send_signal(signal.SIGCONT)
            self.read(0.0)

    def state(self) -> str:
        """The letter of the program's state: T if it is stopped."""
        return Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0]

    def cpu_s(self) -> float:
        """Seconds of processor time that the program has used."""
        times = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[11:13]
        return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")

    def resize(self, columns: int, lines: int) -> None:
        """Changes the size of the terminal."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def close(self) -> None:
        """Ends the program with SIGTERM; kills it if that does not help within 10 s."""
        self.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 10.0
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read(0.1)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
