"""The referee: a process of its own that owns the clock, the worlds and the verdict. Never imports a kernel, nor torch.

    python -m sandbox.referee       commands on stdin, events on stdout (sandbox.events, one JSON object a line)

It ends, with everything it started, when its stdin closes.
"""

import contextlib
import os
import selectors
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from problems.specification import ProblemError, SizeError, WorldRefused, load_problem
from sandbox import deadlines, events, processes
from sandbox.events import (
    Calibrated,
    Cancelled,
    Fatal,
    Finished,
    Log,
    PhaseEnded,
    PhaseStarted,
    Ready,
    Refused,
    RunStarted,
)
from sandbox.exchange import Exchange, Reply, Stage
from sandbox.frames import Kind
from sandbox.jail.choice import choose
from sandbox.judging import Judging
from sandbox.labels import labels
from sandbox.lease import Lease, devices_of
from sandbox.proving import Proving
from sandbox.roofline import Peaks
from sandbox.verdict import ADVICE, Verdict
from sandbox.versus import Versus
from sandbox.world import MEMORY_CHECK_SECONDS, Deadline, World, WorldFailed
from sandbox.world_folder import sweep
from sandbox.worlds import Worlds

HEARD = 16_000
"""Characters kept of what a world printed, for the message when it fails."""


class Stopped(Exception):
    """The run was cancelled, or the engine hung up."""


class HarnessFailed(Exception):
    """The baseline world failed: never the kernel's fault."""


class SettingRefused(Exception):
    """Sizes, world and dtype do not fit together."""


class Referee:
    """Serves commands one at a time; a cancel is heard at every wait."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.jail = choose()
        self.worlds = Worlds(self.jail, self.selector, self.await_all, self.emit, self.hear)
        self.commands: deque[Any] = deque()
        self.buffer = bytearray()
        self.hung_up = False
        self.run: events.Run | None = None
        self.cancelled = False

    # --- the outside ---------------------------------------------------------------------------------------

    def emit(self, event: Any) -> None:
        """Writes an event."""
        stamped = msgspec.structs.replace(event, at=time.monotonic())
        try:
            sys.stdout.buffer.write(events.encode(stamped) + b"\n")
            sys.stdout.buffer.flush()
        except (BrokenPipeError, ValueError):
            self.hung_up = True

    def listen(self) -> None:
        """Reads commands that have arrived."""
        data = os.read(0, 1 << 20)
        if not data:
            self.hung_up = True
            self.selector.unregister(0)
            return
        *lines, rest = (bytes(self.buffer) + data).split(b"\n")
        self.buffer = bytearray(rest)
        for line in filter(None, map(bytes.strip, lines)):
            try:
                self.hear_command(events.decode_command(line))
            except msgspec.MsgspecError as error:
                self.emit(Fatal(message=f"cannot read a command: {error}"))

    def hear_command(self, command: Any) -> None:
        """Cancels and shutdowns act at once; everything else waits its turn."""
        if isinstance(command, events.Shutdown):
            self.hung_up = True
        elif isinstance(command, events.Cancel):
            self.cancelled |= self.run is not None and self.run.run_id == command.run_id
            kept = [
                c for c in self.commands if not (isinstance(c, events.Run) and c.run_id == command.run_id)
            ]
            if len(kept) < len(self.commands):
                self.commands = deque(kept)
                self.emit(Cancelled(run_id=command.run_id, phase="waiting"))
        else:
            self.commands.append(command)

    def hear(self, world: World, rank: int, text: str) -> None:
        """What a rank printed: kept for failures, and shown when it is the contender's."""
        world.said = (world.said + text)[-HEARD:]
        if self.run is not None and world is self.worlds.contender:
            self.emit(Log(run_id=self.run.run_id, rank=rank, stream="out", text=text))

    def serve(self) -> None:
        """Until the engine hangs up."""
        self.selector.register(0, selectors.EVENT_READ, self.listen)
        self.emit(Ready(pid=os.getpid(), jail=self.jail.name))
        while not self.hung_up:
            if self.commands:
                command = self.commands.popleft()
                if isinstance(command, events.Run):
                    self.judge(command)
                elif isinstance(command, events.Warm):
                    self.warm(command.setting)
                elif isinstance(command, events.Calibrate):
                    self.calibrate(command.setting)
                continue
            self.poll(0.5)
            self.worlds.tend_spare()

    def poll(self, timeout: float) -> None:
        """Serves whatever is readable."""
        for selected, _ in self.selector.select(max(timeout, 0.0)):
            handler: Callable[[], None] = selected.data
            handler()

    def await_all(self, world: World, kind: int, limit: float, may_be_late: bool = False) -> Reply:
        """One frame of this kind from every rank of a world.

        may_be_late: a deadline of the baseline world is not a failure either, and the caller deals with it.

        Raises:
            WorldFailed, Deadline: the contender's doing.
            HarnessFailed, SettingRefused: the baseline world's.
            Stopped: the run was cancelled meanwhile.
        """
        started = time.monotonic()
        before = min(world.compile_seconds, deadlines.COMPILE)
        while True:
            try:
                waiting = world.missing(kind)
                if not waiting:
                    return world.take()
                elapsed = time.monotonic() - started
                # Compiling has a deadline of its own, for all of it together: ranks say themselves when they do it.
                compiled = min(world.compile_seconds, deadlines.COMPILE) - before
                if elapsed - compiled > limit:
                    raise Deadline(waiting)
            except WorldFailed as failed:
                if not world.trusted:
                    raise
                if failed.kind == "REFUSED":
                    raise SettingRefused(failed.text) from None
                raise HarnessFailed(f"{failed}\n{failed.text}\n{world.said[-4000:]}") from None
            except Deadline as late:
                if not world.trusted or may_be_late:
                    raise
                message = f"ranks {late.ranks} of the baseline world did not answer within {limit:.0f} s"
                raise HarnessFailed(f"{message}\n{world.said[-4000:]}") from None
            if self.cancelled or self.hung_up:
                raise Stopped
            self.poll(min(0.25, max(limit - elapsed + compiled, 0.001)))
            if elapsed > MEMORY_CHECK_SECONDS:
                world.check_memory()  # takes milliseconds: never within a batch of ordinary length

    # --- commands --------------------------------------------------------------------------------------------

    def warm(self, setting: events.Setting) -> None:
        """Prepares what the next run of this setting needs. Failures show when it runs."""
        self.cancelled = False
        try:
            self.check_setting(setting)
            self.worlds.prepare_stage(setting)
            self.worlds.prepare_spare(setting)
        except (HarnessFailed, SettingRefused, WorldFailed, Deadline, Stopped):
            self.worlds.drop_baseline()

    def calibrate(self, setting: events.Setting) -> None:
        """Measures this machine's peaks in the baseline world, with nothing else running."""
        started = time.monotonic()
        try:
            self.worlds.drop_spare()
            world = self.worlds.open_baseline(setting)
            world.tell(Kind.PEAKS)
            found = [payload for payload, _ in self.await_all(world, Kind.REPLY, deadlines.PREPARE)]
        except (HarnessFailed, SettingRefused, WorldFailed, Deadline, Stopped) as error:
            self.worlds.drop_baseline()
            self.emit(Fatal(message=f"calibration failed: {error}"))
            return
        peaks = {
            name: (max if name.endswith(("_us", "_ms")) else min)(rank[name] for rank in found)
            for name in found[0]
        }
        seconds = time.monotonic() - started
        self.emit(Calibrated(world=setting.world, device=setting.device, peaks=peaks, seconds=seconds))

    def check_setting(self, setting: events.Setting) -> None:
        """Raises SettingRefused for what can be known without a world."""
        try:
            problem = load_problem(Path(setting.problem_dir))
            problem.check_world(setting.world)
            if setting.dtype not in problem.dtypes:
                raise SizeError(f"{problem.slug} runs in {', '.join(problem.dtypes)}, not in {setting.dtype}")
            if setting.device not in ("cpu", "cuda"):
                raise SizeError(f"no device {setting.device!r}: choose cpu or cuda")
        except (ProblemError, SizeError, WorldRefused) as error:
            raise SettingRefused(str(error)) from None

    def judge(self, run: events.Run) -> None:
        """One run, from RunStarted to its last event."""
        self.run, self.cancelled = run, False
        judging: Judging | None = None
        started = time.monotonic()
        try:
            own = run.kernel_name == "baseline" and not run.source and run.versus is None
            run = _with_sources(run)
            digest = sha256(run.source.encode()).hexdigest()
            self.emit(
                RunStarted(run_id=run.run_id, setting=run.setting, kernel_name=run.kernel_name, sha256=digest)
            )
            self.check_setting(run.setting)
            if run.setting.device == "cuda" and (words := self.worlds.require_health()):
                raise HarnessFailed(f"{words}; nothing can be measured there until it is sound again")
            self.prepare(run)
            stage = self.worlds.prepare_stage(run.setting)
            rival = self.worlds.take_rival(run.setting) if run.versus is not None else None
            contender = self.worlds.take_spare(run.setting)
            judging, judge = self.judges(run, stage, contender, rival)
            judging.proof.started = started
            judging.turn = partial(self.turn, run)
            result = msgspec.structs.replace(judge(), jail=self.jail.name)
            if result.verdict is Verdict.PASS:
                result = msgspec.structs.replace(result, labels=labels(run.source) + result.labels)
            if result.verdict is Verdict.PASS and result.seconds.compile > 0:
                contender.keep_compiled(digest)
            if own and result.verdict is Verdict.PASS:
                self.worlds.keep_contender()
            self.listen_on(0.3 if judging.proof.timed_out else 0.02)
            self.emit(Finished(run_id=run.run_id, sha256=digest, result=result))
        except Stopped:
            self.cancelled = False
            if judging is not None:
                self.worlds.settle_baseline(self.poll)
            self.emit(Cancelled(run_id=run.run_id, phase=_phase(judging)))
        except (SettingRefused, OSError) as refused:
            self.worlds.drop_baseline()
            advice = "Choose other sizes, another dtype or world size."
            self.emit(Refused(run_id=run.run_id, message=str(refused).strip(), advice=advice))
        except (HarnessFailed, WorldFailed, Deadline) as error:
            self.worlds.drop_baseline()
            result = _harness_error(str(error), _phase(judging), self.jail.name)
            self.emit(Finished(run_id=run.run_id, sha256=digest, result=result))
        finally:
            self.run = None
            self.worlds.end_contender()
            if not self.hung_up and judging is not None:
                self.worlds.prepare_spare(run.setting)

    def judges(
        self, run: events.Run, stage: Stage, contender: World, rival: World | None
    ) -> tuple[Judging, Callable[[], events.Result]]:
        """The contender's judging, and what judges the whole run."""
        peaks = Peaks.of(run.peaks, run.setting)
        if rival is None:
            exchange = Exchange(run.run_id, stage, contender, self.await_all, self.emit)
            judging = Judging(Proving(run, exchange), peaks)
            return judging, judging.judge
        versus = Versus(run, stage, (contender, rival), self.await_all, self.emit, peaks)
        return versus.judging, versus.judge

    @contextlib.contextmanager
    def turn(self, run: events.Run) -> Iterator[None]:
        """Waits until no other match is timed on these devices, and keeps others out while this one is."""
        try:
            held = Lease(devices_of(run.setting))
        except OSError as error:
            raise HarnessFailed(f"cannot ask for this machine's turn to measure: {error}") from None
        with contextlib.closing(held) as lease:
            until = 0.0
            while not lease.take():
                if not until:
                    until = time.monotonic() + deadlines.TURN
                    text = "another arena is timing a kernel here; this one waits for its turn\n"
                    self.emit(Log(run_id=run.run_id, rank=-1, stream="arena", text=text))
                if self.cancelled or self.hung_up:
                    raise Stopped
                if time.monotonic() > until:
                    raise HarnessFailed(
                        f"another arena on this machine has been timing for {deadlines.TURN:.0f} s"
                    )
                self.poll(0.05)
            yield

    def prepare(self, run: events.Run) -> None:
        """The baseline's side, shown as a phase when there is something to do."""
        if self.worlds.has_stage(run.setting):
            return
        started = time.monotonic()
        self.emit(PhaseStarted(run_id=run.run_id, phase="prepare", limit_s=deadlines.PREPARE))
        self.worlds.prepare_stage(run.setting)
        self.emit(PhaseEnded(run_id=run.run_id, phase="prepare", seconds=time.monotonic() - started))

    def listen_on(self, seconds: float) -> None:
        """Hears out what the ranks still had to say (a traceback dump, the end of their prints)."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.poll(until - time.monotonic())


def _with_sources(run: events.Run) -> events.Run:
    """The run with the baseline's text where it says `baseline`."""
    baseline = Path(run.setting.problem_dir) / "baseline.py"
    if run.kernel_name == "baseline" and not run.source:
        run = msgspec.structs.replace(run, source=baseline.read_text())
    rival = run.versus
    if rival is not None and rival.kernel_name == "baseline" and not rival.source:
        rival = msgspec.structs.replace(rival, source=baseline.read_text())
        run = msgspec.structs.replace(run, versus=rival)
    return run


def _phase(judging: Judging | None) -> str:
    return judging.proof.exchange.phase if judging else "prepare"


def _harness_error(text: str, phase: str, jail_name: str) -> events.Result:
    lines = text.strip().splitlines()
    message = lines[0][:300] if lines else "the harness failed"
    advice = ADVICE[Verdict.HARNESS_ERROR]
    return events.Result(
        verdict=Verdict.HARNESS_ERROR,
        detail=f"{message} (phase {phase}). {advice}",
        failure=events.Failure(phase=phase, message=message, advice=advice, text=text[:60_000]),
        paper_rule=None,
        error=None,
        speedup=None,
        baseline_us=None,
        contender_us=None,
        roofline=None,
        seconds=events.Seconds(),
        jail=jail_name,
        sealed=True,
    )


def main() -> None:
    """Serves until stdin closes; SIGTERM ends it in order, SIGINT is the engine's business."""
    processes.die_with_parent()
    processes.adopt_orphans()
    processes.hide_from_ptrace()
    sweep()
    referee = Referee()

    def end(*_: object) -> None:
        referee.hung_up = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        referee.serve()
    except BaseException as error:
        referee.emit(Fatal(message=f"the referee failed: {error!r}"))
        raise
    finally:
        referee.worlds.close()


if __name__ == "__main__":
    main()
