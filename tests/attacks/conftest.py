"""A referee of one's own, driven as the engine drives it: commands in, events out."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from problems.catalogue import load_catalogue
from sandbox import events

ROOT = Path(__file__).resolve().parents[2]


class RefereeAtWork:
    """A referee process and what it has said."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sandbox.referee"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )
        self.count = 0
        self.catalogue = load_catalogue()
        self.events: list[Any] = []

    def setting(self, name: str, world: int = 2, dtype: str = "bfloat16", **sizes: int) -> events.Setting:
        """A problem's tiny preset on CPU ranks."""
        problem = self.catalogue.find(name)
        return events.Setting(
            problem_dir=str(problem.folder),
            preset="tiny",
            sizes=problem.sizes("tiny", sizes),
            world=world,
            device="cpu",
            dtype=dtype,
        )

    def send(self, command: Any) -> None:
        """Sends a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(events.encode(command) + b"\n")
        self.process.stdin.flush()

    def start(self, setting: events.Setting, source: str, name: str = "kernel.py", rounds: int | None = 3) -> str:
        """Sends a run and returns its id."""
        self.count += 1
        run_id = f"run-{self.count}"
        self.send(events.Run(run_id=run_id, setting=setting, kernel_name=name, source=source, rounds=rounds))
        return run_id

    def until(self, *kinds: type) -> Any:
        """Reads events until one of these kinds; a referee that says nothing for two minutes is an error."""
        assert self.process.stdout is not None
        watchdog = threading.Timer(120, self.process.kill)
        watchdog.start()
        try:
            for line in self.process.stdout:
                event = events.decode_event(line)
                self.events.append(event)
                if isinstance(event, kinds):
                    return event
        finally:
            watchdog.cancel()
        raise AssertionError("the referee ended")

    def judge(self, setting: events.Setting, source: str, **options: Any) -> events.Result:
        """Runs a kernel to its verdict."""
        self.events.clear()
        self.start(setting, source, **options)
        event = self.until(events.Finished)
        return event.result

    def close(self) -> None:
        """Hangs up and waits."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


@pytest.fixture(scope="session")
def referee() -> Iterator[RefereeAtWork]:
    """One referee for all tests of a session: its worlds stay warm."""
    referee = RefereeAtWork()
    yield referee
    referee.close()
