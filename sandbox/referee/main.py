"""The referee: a process of its own that owns the clock, the worlds and the verdict. Never imports a kernel, nor torch.

    python -m sandbox.referee.main       commands on stdin, events on stdout (sandbox.protocol.events, one JSON object a line)

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
from sandbox.jail.choice import Jail, choose
from sandbox.machine import processes
from sandbox.machine.devices import KINDS, kind_of
from sandbox.machine.time_source import TimeSource
from sandbox.protocol import events
from sandbox.protocol.events import (
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
from sandbox.protocol.harness_error import harness_error_result
from sandbox.protocol.messages import MeasurePeaks, PeaksMeasured
from sandbox.protocol.verdict import Verdict
from sandbox.referee.awaiting import Awaiting, SettingRefused, Stopped
from sandbox.referee.correctness import CorrectnessCheck
from sandbox.referee.evaluation import Evaluation
from sandbox.referee.labels import labels
from sandbox.referee.lease import Lease, devices_of
from sandbox.referee.versus import Versus
from sandbox.timing.roofline import Peaks
from sandbox.timing.turns import TimedSide
from sandbox.worlds import deadlines
from sandbox.worlds.exchange import REFERENCE, Exchange, Stage, ask
from sandbox.worlds.failures import Deadline, HarnessFailed, WorldFailed
from sandbox.worlds.fork_server import ForkServers
from sandbox.worlds.pool import Worlds
from sandbox.worlds.world import World
from sandbox.worlds.world_folder import sweep
from sandbox.worlds.world_spec import WorldSpec


class Referee:
    """Serves commands one at a time; a cancel is heard at every wait."""

    def __init__(
        self,
        jail: Jail | None = None,
        selector: selectors.BaseSelector | None = None,
        start_processes: Callable[[WorldSpec], World] | None = None,
        timer: TimeSource = time,
    ) -> None:
        """jail: the strongest that holds on this machine, unless given. start_processes: as `Worlds` takes it."""
        self.jail = jail or choose()
        self.selector = selector or selectors.DefaultSelector()
        self.timer = timer
        self.await_all = Awaiting(self.poll, self.stopped, timer)
        self.servers = ForkServers()
        start = start_processes or partial(
            World.start, selector=self.selector, heard=self.hear, servers=self.servers
        )
        self.worlds = Worlds(self.jail, start, self.await_all, self.emit, timer)
        self.commands: deque[Any] = deque()
        self.buffer = bytearray()
        self.hung_up = False
        self.run: events.Run | None = None
        self.cancelled = False

    # --- the outside ---------------------------------------------------------------------------------------

    def emit(self, event: Any) -> None:
        """Writes an event."""
        stamped = msgspec.structs.replace(event, at=self.timer.monotonic())
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
        """What a rank printed: shown when it is the contender's."""
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
            self.worlds.tend_spares()

    def poll(self, timeout: float) -> None:
        """Serves whatever is readable."""
        for selected, _ in self.selector.select(max(timeout, 0.0)):
            handler: Callable[[], None] = selected.data
            handler()

    def stopped(self) -> bool:
        """Whether nobody wants the run any more."""
        return self.cancelled or self.hung_up

    # --- commands --------------------------------------------------------------------------------------------

    def warm(self, setting: events.Setting) -> None:
        """Prepares what the next run of this setting needs. Failures show when it runs."""
        self.cancelled = False
        try:
            self.check_setting(setting)
            count = kind_of(setting.device).pace.references_for(None)
            self.worlds.take_references(self.worlds.prepare_stage(setting, count), setting, count)
            self.worlds.prepare_spare(setting)
        except (HarnessFailed, SettingRefused, WorldFailed, Deadline, Stopped, OSError):
            self.worlds.drop_oracle()

    def calibrate(self, setting: events.Setting) -> None:
        """Measures this machine's peaks in the baseline world, with nothing else running."""
        started = self.timer.monotonic()
        try:
            self.worlds.drop_all_but_oracle()
            world = self.worlds.open_oracle(setting)
            measured = ask(self.await_all, world, MeasurePeaks(), PeaksMeasured, deadlines.PREPARE)
        except (HarnessFailed, SettingRefused, WorldFailed, Deadline, Stopped, OSError) as error:
            self.worlds.drop_oracle()
            self.emit(Fatal(message=f"calibration failed: {error}"))
            return
        peaks = {
            name: (max if name.endswith(("_us", "_ms")) else min)(rank.peaks[name] for rank in measured)
            for name in measured[0].peaks
        }
        seconds = self.timer.monotonic() - started
        self.emit(Calibrated(world=setting.world, device=setting.device, peaks=peaks, seconds=seconds))

    def check_setting(self, setting: events.Setting) -> None:
        """Raises SettingRefused for what can be known without a world."""
        try:
            problem = load_problem(Path(setting.problem_dir))
            problem.check_world(setting.world)
            if setting.dtype not in problem.dtypes:
                raise SizeError(f"{problem.slug} runs in {', '.join(problem.dtypes)}, not in {setting.dtype}")
            if setting.device not in KINDS:
                raise SizeError(f"no device {setting.device!r}: choose {' or '.join(KINDS)}")
        except (ProblemError, SizeError, WorldRefused) as error:
            raise SettingRefused(str(error)) from None

    def judge(self, run: events.Run) -> None:
        """One run, from RunStarted to its last event."""
        self.run, self.cancelled = run, False
        evaluation: Evaluation | None = None
        started = self.timer.monotonic()
        digest = ""
        try:
            own = run.kernel_name == "baseline" and not run.source and run.versus is None
            run = _with_sources(run)
            digest = sha256(run.source.encode()).hexdigest()
            self.emit(
                RunStarted(run_id=run.run_id, setting=run.setting, kernel_name=run.kernel_name, sha256=digest)
            )
            self.check_setting(run.setting)
            if kind_of(run.setting.device).outlives_kernels and (words := self.worlds.require_health()):
                raise HarnessFailed(f"{words}; nothing can be measured there until it is sound again")
            stage, references = self.prepare(run)
            rival = self.worlds.take_rival(run.setting) if run.versus is not None else None
            contender = self.worlds.take_spare(run.setting)
            evaluation, judge = self.judges(run, stage, contender, references, rival)
            evaluation.correctness.started = started
            evaluation.turn = partial(self.turn, run)
            result = msgspec.structs.replace(judge(), jail=self.jail.name)
            if result.verdict is Verdict.PASS:
                result = msgspec.structs.replace(result, labels=labels(run.source) + result.labels)
            if result.verdict is Verdict.PASS and result.seconds.compile > 0:
                contender.keep_compiled(digest)
            if own and result.verdict is Verdict.PASS and not stage.varies:
                self.worlds.keep_contender()
            self.listen_on(0.3 if evaluation.correctness.timed_out else 0.02)
            self.emit(Finished(run_id=run.run_id, sha256=digest, result=result))
        except Stopped:
            self.cancelled = False
            if self.worlds.stage is not None:
                self.worlds.await_oracle(self.poll)
            if evaluation is not None:
                self.worlds.drop_busy_references()
            self.emit(Cancelled(run_id=run.run_id, phase=_phase(evaluation)))
        except SettingRefused as refused:
            self.worlds.drop_oracle()
            advice = "Choose other sizes, another dtype or world size."
            self.emit(Refused(run_id=run.run_id, message=str(refused).strip(), advice=advice))
        except (HarnessFailed, WorldFailed, Deadline, OSError) as error:
            self.worlds.drop_oracle()
            self.worlds.drop_references()
            message = str(error).strip()
            text = error.text.strip() if isinstance(error, WorldFailed) and error.text else message
            message = message.splitlines()[0][:300] if message else "the harness failed"
            result = harness_error_result(_phase(evaluation), message, text, self.jail.name, sealed=True)
            self.emit(Finished(run_id=run.run_id, sha256=digest, result=result))
        finally:
            self.run = None
            self.worlds.end_contender()
            if not self.hung_up and evaluation is not None:
                with contextlib.suppress(HarnessFailed):  # the next run starts one, and says why it cannot
                    self.worlds.renew_references(run.setting)
                    self.worlds.prepare_spare(run.setting)

    def judges(
        self,
        run: events.Run,
        stage: Stage,
        contender: World,
        references: list[World],
        rival: World | None,
    ) -> tuple[Evaluation, Callable[[], events.Result]]:
        """The contender's evaluation, and what judges the whole run."""
        peaks = Peaks.of(run.peaks, run.setting)
        if rival is None:
            exchange = Exchange(run.run_id, stage, contender, self.await_all, self.emit, timer=self.timer)
            evaluation = Evaluation(
                CorrectnessCheck(run, exchange), peaks, self.baselines_side(run, stage, references)
            )
            return evaluation, evaluation.judge
        versus = Versus(run, stage, (contender, rival), self.await_all, self.emit, peaks, self.timer)
        return versus.evaluation, versus.judge

    def baselines_side(self, run: events.Run, stage: Stage, references: list[World]) -> TimedSide | None:
        """The worlds that run the baseline; None where nothing is timed."""
        if not references:
            return None
        exchange = Exchange(
            run.run_id, stage, references[0], self.await_all, self.emit, REFERENCE, self.timer
        )
        return TimedSide(exchange, references)

    @contextlib.contextmanager
    def turn(self, run: events.Run) -> Iterator[None]:
        """Waits until no other match is timed on these devices, and keeps others out, and spares still, while this one is."""
        try:
            held = Lease(devices_of(run.setting))
        except OSError as error:
            raise HarnessFailed(f"cannot ask for this machine's turn to measure: {error}") from None
        with contextlib.closing(held) as lease:
            until = 0.0
            while not lease.take():
                if not until:
                    until = self.timer.monotonic() + deadlines.TURN
                    text = "another kernel is being timed or profiled here; this one waits for its turn\n"
                    self.emit(Log(run_id=run.run_id, rank=-1, stream="arena", text=text))
                if self.stopped():
                    raise Stopped
                if self.timer.monotonic() > until:
                    raise HarnessFailed(
                        f"another arena on this machine has been timing for {deadlines.TURN:.0f} s"
                    )
                self.poll(0.05)
            with self.worlds.spares_stopped():
                yield

    def prepare(self, run: events.Run) -> tuple[Stage, list[World]]:
        """The trusted world and those that run the baseline, shown as a phase when there is something to do."""
        timed = run.rounds != 0 and run.versus is None
        count = kind_of(run.setting.device).pace.references_for(run.rounds) if timed else 0
        if self.worlds.has_stage(run.setting) and self.worlds.has_references(count):
            return self.worlds.prepare_stage(run.setting), self.worlds.references[:count]
        started = self.timer.monotonic()
        self.emit(PhaseStarted(run_id=run.run_id, phase="prepare", limit_s=deadlines.PREPARE))
        stage = self.worlds.prepare_stage(run.setting, count)
        references = self.worlds.take_references(stage, run.setting, count) if count else []
        if len(references) < count:
            text = f"the devices' memory has room for {len(references)} of {count} worlds that run the baseline\n"
            self.emit(Log(run_id=run.run_id, rank=-1, stream="arena", text=text))
        self.emit(PhaseEnded(run_id=run.run_id, phase="prepare", seconds=self.timer.monotonic() - started))
        return stage, references

    def listen_on(self, seconds: float) -> None:
        """Reads what the ranks still print for a while (a traceback dump, the end of their prints)."""
        until = self.timer.monotonic() + seconds
        while self.timer.monotonic() < until:
            self.poll(until - self.timer.monotonic())


def _with_sources(run: events.Run) -> events.Run:
    """The run with the baseline's text where it says `baseline`."""
    if run.kernel_name == "baseline" and not run.source:
        run = msgspec.structs.replace(run, source=_baseline_source(run.setting))
    rival = run.versus
    if rival is not None and rival.kernel_name == "baseline" and not rival.source:
        rival = msgspec.structs.replace(rival, source=_baseline_source(run.setting))
        run = msgspec.structs.replace(run, versus=rival)
    return run


def _baseline_source(setting: events.Setting) -> str:
    try:
        return (Path(setting.problem_dir) / "baseline.py").read_text()
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise SettingRefused(f"the problem has no baseline that can be read: {error}") from None


def _phase(evaluation: Evaluation | None) -> str:
    return evaluation.correctness.exchange.phase if evaluation else "prepare"


def main() -> None:
    """Serves until stdin closes; SIGTERM ends it in order; SIGINT is ignored, the engine handles it."""
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
        referee.servers.close()


if __name__ == "__main__":
    main()
