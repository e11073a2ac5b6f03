"""One referee for the tests of a process that do not check how a referee starts or ends: its worlds stay warm.

An engine starts its referee with a command. This one's command starts a relay (referee_relay.py), which connects the
engine to the running referee. One engine is connected at a time.
"""

import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from waiting import PATIENCE_S

from arena.paths import ROOT, module_environment
from arena.runs.referee_process import COMMAND, ENVIRONMENT
from sandbox.protocol import events

RELAY = Path(__file__).with_name("referee_relay.py")
END_S = 60.0
"""Seconds for cancelling a run that its engine left. Then the referee is killed; the next engine gets a new one."""


class SharedReferee:
    """A real referee, started with the first engine that asks for it. A run that an engine leaves is cancelled."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """folder: for the socket. environment: variables of the referee, added to `module_environment`."""
        self._environment = {**module_environment(), **ENVIRONMENT, **environment}
        path = folder / "referee"
        self.command = (sys.executable, "-I", "-S", str(RELAY), str(path))
        """The command that an engine starts as its referee."""
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self._referee: subprocess.Popen[bytes] | None = None
        self._ready = b""
        self._engine: socket.socket | None = None
        self._runs: set[str] = set()
        """Runs that were requested and have not ended."""
        self._changed = threading.Condition()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Ends the referee with its worlds."""
        if self._referee is not None:
            self._referee.stdin.close()
            self._referee.wait(PATIENCE_S)
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError):  # the socket was closed
            while True:
                engine, _ = self._listening.accept()
                with engine, suppress(ConnectionError):
                    self._attend(engine)

    def _attend(self, engine: socket.socket) -> None:
        """Serves one engine until it disconnects."""
        referee = self._living()
        engine.sendall(self._ready)
        with self._changed:
            self._engine = engine
        try:
            with engine.makefile("rb") as commands:
                for line in commands:
                    command = events.decode_command(line)
                    if isinstance(command, events.Run):
                        with self._changed:
                            self._runs.add(command.run_id)
                    self._tell(referee, line)
        finally:
            with self._changed:
                self._engine = None
                left = list(self._runs)
            for run_id in left:
                self._tell(referee, events.encode(events.Cancel(run_id=run_id)) + b"\n")
            with self._changed:
                if not self._changed.wait_for(lambda: not self._runs, END_S):
                    referee.kill()

    def _living(self) -> "subprocess.Popen[bytes]":
        """The running referee. Starts one if there is none or it has ended."""
        if self._referee is None or self._referee.poll() is not None:
            self._referee = subprocess.Popen(
                COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=self._environment
            )
            self._ready = self._referee.stdout.readline()
            assert isinstance(events.decode_event(self._ready), events.Ready), self._ready
            threading.Thread(target=self._listen, args=[self._referee], daemon=True).start()
        return self._referee

    def _tell(self, referee: "subprocess.Popen[bytes]", line: bytes) -> None:
        with suppress(BrokenPipeError):  # it has ended, which `_listen` handles
            referee.stdin.write(line)
            referee.stdin.flush()

    def _listen(self, referee: "subprocess.Popen[bytes]") -> None:
        """Forwards events of the referee to the connected engine. When the referee ends, the engine is disconnected."""
        assert referee.stdout is not None
        for line in referee.stdout:
            event = events.decode_event(line)
            with self._changed:
                engine = self._engine
                if isinstance(event, events.Finished | events.Cancelled | events.Refused):
                    self._runs.discard(event.run_id)
                    self._changed.notify_all()
            if engine is not None:
                with suppress(OSError):  # the engine has disconnected
                    engine.sendall(line)
        with self._changed:
            self._runs.clear()
            self._changed.notify_all()
            if self._engine is not None:
                with suppress(OSError):
                    self._engine.shutdown(socket.SHUT_RDWR)
