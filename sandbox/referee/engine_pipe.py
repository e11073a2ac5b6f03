"""The pipe to the engine: commands from stdin, events to stdout, one JSON object a line (sandbox.protocol.events)."""

import os
import selectors
import sys
import time
from collections import deque
from typing import Any

import msgspec

from sandbox.machine.time_source import TimeSource
from sandbox.protocol import events
from sandbox.protocol.events import Cancelled, Fatal

STDIN = 0


class EnginePipe:
    """Commands wait in a queue. A cancel and a shutdown take effect when they are read."""

    def __init__(self, selector: selectors.BaseSelector, timer: TimeSource = time) -> None:
        """selector: `open` registers stdin there."""
        self.selector = selector
        self.timer = timer
        self.commands: deque[Any] = deque()
        self.hung_up = False
        """Whether the engine is gone or wants the referee to end."""
        self.running: str | None = None
        """The id of the run that is judged now."""
        self.cancelled = False
        """Whether that run was cancelled."""
        self._rest = b""

    def open(self) -> None:
        """Reads commands from now on, whenever the selector is polled."""
        self.selector.register(STDIN, selectors.EVENT_READ, self._read)

    def stopped(self) -> bool:
        """Whether the run was cancelled or the engine is gone."""
        return self.cancelled or self.hung_up

    def begin_run(self, run_id: str) -> None:
        """Notes the run that is judged from now on."""
        self.running, self.cancelled = run_id, False

    def end_run(self) -> None:
        """No run is judged from now on, so no cancel has an effect."""
        self.running, self.cancelled = None, False

    def emit(self, event: Any) -> None:
        """Writes an event."""
        stamped = msgspec.structs.replace(event, at=self.timer.monotonic())
        try:
            sys.stdout.buffer.write(events.encode(stamped) + b"\n")
            sys.stdout.buffer.flush()
        except (BrokenPipeError, ValueError):
            self.hung_up = True

    def _read(self) -> None:
        data = os.read(STDIN, 1 << 20)
        if not data:
            self.hung_up = True
            self.selector.unregister(STDIN)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in filter(None, map(bytes.strip, lines)):
            try:
                self.hear(events.decode_command(line))
            except msgspec.MsgspecError as error:
                self.emit(Fatal(message=f"cannot read a command: {error}"))

    def hear(self, command: Any) -> None:
        """Handles a cancel or a shutdown at once, and queues all other commands."""
        if isinstance(command, events.Shutdown):
            self.hung_up = True
        elif isinstance(command, events.Cancel):
            self.cancelled |= self.running == command.run_id
            kept = [c for c in self.commands if not (isinstance(c, events.Run) and c.run_id == command.run_id)]
            if len(kept) < len(self.commands):
                self.commands = deque(kept)
                self.emit(Cancelled(run_id=command.run_id, phase="waiting"))
        else:
            self.commands.append(command)
