"""A program in a pseudo-terminal, as a person sees it."""

import os
import sys
import time

import pexpect
import psutil
import pyte
from waiting import PATIENCE_S

COLUMNS, LINES = 160, 45


class Screen:
    """The app as a person sees it."""

    def __init__(self, *arguments: str) -> None:
        self.process = pexpect.spawn(
            sys.executable,
            ["-P", "-m", *arguments],
            dimensions=(LINES, COLUMNS),
            env=os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
        )
        self.picture = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self.picture)
        self.raw = b""

    def read(self) -> None:
        try:
            got = self.process.read_nonblocking(1 << 16, timeout=0.2)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return
        self.raw += got
        self._stream.feed(got)

    def shows(self, *texts: str, times: int = 1) -> str:
        """Waits until the screen has every text at least `times` times. Returns the screen's lines."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.read()
            picture = "\n".join(self.picture.display)
            if all(picture.count(text) >= times for text in texts):
                return picture
        raise AssertionError(f"{texts} never stood on the screen:\n" + "\n".join(self.picture.display))

    def ends(self) -> int:
        """Waits until the process ends by itself. Returns its exit status."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.isalive() and time.monotonic() < deadline:
            self.read()
        assert not self.process.isalive(), "the app did not end"
        self.process.close()
        return self.process.exitstatus

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, *_: object) -> None:
        end(self.process)


def end(process: pexpect.spawn) -> None:
    """Closes the terminal and ends the process, with SIGKILL if necessary. pexpect waits only 0.1 s for the end."""
    try:
        process.close(force=True)
    except pexpect.ExceptionPexpect:
        process.wait()


def descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)
