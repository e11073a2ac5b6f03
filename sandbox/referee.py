"""The referee: a process of its own that owns the clock, the worlds and the verdict. Never imports a kernel, nor torch.

    python -m sandbox.referee       commands on stdin, events on stdout (sandbox.events, one JSON object a line)

It ends, with everything it started, when its stdin closes.
"""

import os
import selectors
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from problems.specification import ProblemError, SizeError, WorldRefused, load_problem
from sandbox import deadlines, events, jail, processes
from sandbox.deadlines import Limits
from sandbox.events import Cancelled, Fatal, Finished, Log, PhaseEnded, PhaseStarted, Ready, Refused, RunStarted, WorldChanged
from sandbox.frames import Kind
from sandbox.judging import Judging, Stage
from sandbox.roofline import Peaks
from sandbox.verdict import ADVICE, Verdict
from sandbox.world import Deadline, World, WorldFailed

BATCH_SECONDS = {"cpu": 0.006, "cuda": 0.005}
MAX_CALLS = 64
ARENA_BYTES = {"cpu": 32 << 20, "cuda": 4 << 30}


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
        self.profile = jail.choose()
        self.commands: deque[Any] = deque()
        self.buffer = bytearray()
        self.hung_up = False
        self.run: events.Run | None = None
        self.cancelled = False
        self.stage: Stage | None = None
        self.stage_key: Any = None
        self.baseline: World | None = None
        self.spare: World | None = None
        self.spare_setting: events.Setting | None = None
        self.said: dict[int, str] = {}

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
        self.buffer += data
        while b"\n" in self.buffer:
            line, _, rest = self.buffer.partition(b"\n")
            self.buffer = bytearray(rest)
            if not line.strip():
                continue
            try:
                command = events.decode_command(bytes(line))
            except msgspec.MsgspecError as error:
                self.emit(Fatal(message=f"cannot read a command: {error}"))
                continue
            if isinstance(command, events.Cancel):
                self.cancelled |= self.run is not None and self.run.run_id == command.run_id
                waiting = [c for c in self.commands if not (isinstance(c, events.Run) and c.run_id == command.run_id)]
                if len(waiting) < len(self.commands):
                    self.commands = deque(waiting)
                    self.emit(Cancelled(run_id=command.run_id, phase="waiting"))
            elif isinstance(command, events.Shutdown):
                self.hung_up = True
            else:
                self.commands.append(command)

    def serve(self) -> None:
        """Until the engine hangs up."""
        self.selector.register(0, selectors.EVENT_READ, self.listen)
        self.emit(Ready(pid=os.getpid(), jail=self.profile.name))
        while not self.hung_up:
            if self.commands:
                command = self.commands.popleft()
                if isinstance(command, events.Run):
                    self.judge(command)
                elif isinstance(command, events.Warm):
                    self.warm(command.setting)
                continue
            self.poll(0.5)
            self.tend_spare()

    def poll(self, timeout: float) -> None:
        """Serves whatever is readable."""
        for key, _ in self.selector.select(max(timeout, 0.0)):
            handler: Callable[[], None] = key.data
            handler()

    def await_all(self, world: World, kind: int, limit: float) -> list[tuple[Any, list[int]]]:
        """One frame of this kind from every rank of a world.

        Raises:
            WorldFailed, Deadline: the contender's doing.
            HarnessFailed, SettingRefused: the baseline world's.
            Stopped: the run was cancelled meanwhile.
        """
        started = time.monotonic()
        while True:
            try:
                waiting = world.missing(kind)
                if not waiting:
                    return world.take()
                elapsed = time.monotonic() - started
                if elapsed > (deadlines.COMPILE if world.compiling else limit):
                    raise Deadline(waiting)
            except WorldFailed as failed:
                if not world.trusted:
                    raise
                if failed.kind == "REFUSED":
                    raise SettingRefused(failed.text) from None
                raise HarnessFailed(f"{failed}\n{failed.text}\n{self.heard(world)}") from None
            except Deadline as late:
                if not world.trusted:
                    raise
                raise HarnessFailed(f"the baseline world's ranks {late.ranks} did not answer\n{self.heard(world)}") from None
            if self.cancelled or self.hung_up:
                raise Stopped
            self.poll(min(0.25, max(limit - elapsed, 0.001)))

    def heard(self, world: World) -> str:
        """The end of what a world printed."""
        return self.said.get(id(world), "")[-4000:]

    # --- worlds ----------------------------------------------------------------------------------------------

    def start_world(self, role: str, ranks: int) -> World:
        """Starts a world's processes."""
        holder: list[World] = []

        def on_text(rank: int, text: str) -> None:
            if not holder:
                return
            world = holder[0]
            self.said[id(world)] = (self.said.get(id(world), "") + text)[-16_000:]
            if self.run is not None and world is self.contender:
                self.emit(Log(run_id=self.run.run_id, rank=rank, stream="out", text=text))

        world = World(ranks, role == "baseline", self.profile, self.selector, on_text)
        holder.append(world)
        self.emit(WorldChanged(role=role, state="starting", world=ranks))
        return world

    contender: World | None = None

    def open_problem(self, world: World, setting: events.Setting, role: str) -> None:
        """Waits for a world and opens the problem in it."""
        if not world.opened:
            self.await_all(world, Kind.READY, deadlines.START)
            world.opened = True
        world.tell(Kind.OPEN, _opening(setting))
        self.await_all(world, Kind.OPENED, deadlines.START)
        world.setting_key = _key(setting)
        self.emit(WorldChanged(role=role, state="ready", world=world.ranks, seconds=time.monotonic() - world.started))

    def end_world(self, world: World | None, role: str) -> None:
        """Kills a world."""
        if world is not None:
            world.close()
            self.said.pop(id(world), None)
            self.emit(WorldChanged(role=role, state="gone", world=world.ranks))

    def prepare_spare(self, setting: events.Setting) -> None:
        """Starts the next contender world in the background."""
        if self.spare is not None and self.spare.ranks != setting.world:
            self.end_world(self.spare, "spare")
            self.spare = None
        self.spare_setting = setting
        if self.spare is None:
            self.spare = self.start_world("spare", setting.world)

    def tend_spare(self) -> None:
        """Carries a starting spare further, without waiting: ready, then its problem opened."""
        world, setting = self.spare, self.spare_setting
        if world is None or setting is None or world.setting_key == _key(setting):
            return
        try:
            if not world.opened:
                if world.missing(Kind.READY):
                    return
                world.take()
                world.opened = True
                world.tell(Kind.OPEN, _opening(setting))
                world.setting_key = ("opening", _key(setting))
            elif world.setting_key == ("opening", _key(setting)):
                if world.missing(Kind.OPENED):
                    return
                world.take()
                world.setting_key = _key(setting)
                seconds = time.monotonic() - world.started
                self.emit(WorldChanged(role="spare", state="ready", world=world.ranks, seconds=seconds))
        except WorldFailed:
            self.end_world(world, "spare")
            self.spare = None

    def take_spare(self, setting: events.Setting) -> World:
        """The spare with the problem open, or a fresh world where there is none that fits."""
        self.prepare_spare(setting)
        world = self.spare
        assert world is not None
        while isinstance(world.setting_key, tuple) and world.setting_key[0] == "opening":
            self.await_all(world, Kind.OPENED, deadlines.START)
            world.setting_key = world.setting_key[1]
        if world.setting_key != _key(setting):
            self.open_problem(world, setting, "spare")
        self.spare = None
        return world

    def prepare_stage(self, setting: events.Setting) -> Stage:
        """The baseline world with this setting open, its arenas sized and its time known."""
        if self.stage is not None and self.stage_key == _key(setting):
            return self.stage
        self.stage = None
        if self.baseline is not None and self.baseline.ranks != setting.world:
            self.end_world(self.baseline, "baseline")
            self.baseline = None
        if self.baseline is None:
            self.baseline = self.start_world("baseline", setting.world)
        if self.spare is None:
            self.prepare_spare(setting)  # both worlds import torch at the same time
        world = self.baseline
        self.open_problem(world, setting, "baseline")
        world.tell(Kind.PROBE, {"seeds": [int.from_bytes(os.urandom(8), "little") >> 1 for _ in range(4)]})
        replies = [payload for payload, _ in self.await_all(world, Kind.REPLY, deadlines.PREPARE)]
        seconds = max(reply["seconds"] for reply in replies)
        layout = {name: max(reply[name] for reply in replies) for name in ("in_bytes", "out_bytes", "room")}
        fits = ARENA_BYTES[setting.device] // (layout["in_bytes"] + layout["out_bytes"])
        wanted = int(BATCH_SECONDS[setting.device] / max(seconds, 1e-6)) + 1
        stage = Stage(world, Limits.for_baseline(seconds, wanted))
        stage.calls = max(1, min(wanted, fits, MAX_CALLS))
        stage.call_seconds = seconds
        stage.layout = {**layout, "slots": max(1, min(MAX_CALLS, fits))}
        self.stage, self.stage_key = stage, _key(setting)
        return stage

    # --- commands --------------------------------------------------------------------------------------------

    def warm(self, setting: events.Setting) -> None:
        """Prepares what the next run of this setting needs. Failures show when it runs."""
        try:
            self.check_setting(setting)
            self.prepare_stage(setting)
            self.prepare_spare(setting)
        except (HarnessFailed, SettingRefused, WorldFailed, Deadline, Stopped):
            self.drop_baseline()

    def drop_baseline(self) -> None:
        """Forgets the baseline world; the next run starts a new one."""
        self.end_world(self.baseline, "baseline")
        self.baseline = self.stage = None

    def check_setting(self, setting: events.Setting) -> None:
        """Raises SettingRefused for what can be known without a world."""
        try:
            problem = load_problem(Path(setting.problem_dir))
            problem.check_world(setting.world)
            if setting.dtype not in problem.dtypes:
                raise SizeError(f"{problem.slug} runs in {', '.join(problem.dtypes)}, not in {setting.dtype}")
            if setting.device != "cpu":
                raise SizeError(f"device {setting.device!r}: this version runs on CPU ranks")
        except (ProblemError, SizeError, WorldRefused) as error:
            raise SettingRefused(str(error)) from None

    def judge(self, run: events.Run) -> None:
        """One run, from RunStarted to its last event."""
        if run.kernel_name == "baseline" and not run.source:
            run = msgspec.structs.replace(run, source=(Path(run.setting.problem_dir) / "baseline.py").read_text())
        digest = sha256(run.source.encode()).hexdigest()
        self.run, self.cancelled = run, False
        self.emit(RunStarted(run_id=run.run_id, setting=run.setting, kernel_name=run.kernel_name, sha256=digest))
        phase = "prepare"
        judging: Judging | None = None
        try:
            started = time.monotonic()
            self.check_setting(run.setting)
            if self.stage is None or self.stage_key != _key(run.setting):
                self.emit(PhaseStarted(run_id=run.run_id, phase="prepare", limit_s=deadlines.PREPARE))
                self.prepare_stage(run.setting)
                self.emit(PhaseEnded(run_id=run.run_id, phase="prepare", seconds=time.monotonic() - started))
            stage = self.prepare_stage(run.setting)
            self.contender = self.take_spare(run.setting)
            judging = Judging(run, stage, self.contender, self.await_all, self.emit, Peaks(device=run.setting.device))
            judging.started = started
            result = judging.judge()
            result = msgspec.structs.replace(result, jail=self.profile.name)
            self.settle(judging)
            self.emit(Finished(run_id=run.run_id, sha256=digest, result=result))
        except Stopped:
            self.drop_if_busy(judging)
            self.emit(Cancelled(run_id=run.run_id, phase=judging.phase if judging else phase))
        except SettingRefused as refused:
            self.drop_baseline()
            self.emit(Refused(run_id=run.run_id, message=str(refused).strip(), advice="Choose other sizes, another dtype or world size."))
        except (HarnessFailed, WorldFailed, Deadline) as error:
            self.drop_baseline()
            result = _harness_error(str(error), judging.phase if judging else phase, self.profile.name)
            self.emit(Finished(run_id=run.run_id, sha256=digest, result=result))
        finally:
            self.run = None
            self.end_world(self.contender, "contender")
            self.contender = None
            if not self.hung_up:
                self.prepare_spare(run.setting)

    def settle(self, judging: Judging) -> None:
        """Hears out what the ranks still had to say (a traceback dump, the end of their prints)."""
        until = time.monotonic() + (0.3 if judging.timed_out else 0.02)
        while time.monotonic() < until:
            self.poll(until - time.monotonic())

    def drop_if_busy(self, judging: Judging | None) -> None:
        """After a cancel in the middle of a batch the baseline world may still be working: a new one is quicker."""
        world = self.baseline
        if judging is None:
            return
        if world is not None:
            try:
                world.tell(Kind.INTACT)
                self.cancelled = False
                self.drain(world)
            except (HarnessFailed, Stopped):
                self.drop_baseline()

    def drain(self, world: World) -> None:
        """Reads answers of a world until the one to INTACT (the last one asked) is there from every rank."""
        deadline = time.monotonic() + 2.0
        for rank, line in enumerate(world.lines):
            while True:
                answers = [payload for _, payload, _ in line.frames if isinstance(payload, dict)]
                if any(set(answer) == {"intact"} for answer in answers):
                    break
                if time.monotonic() > deadline or line.closed:
                    raise HarnessFailed(f"rank {rank} of the baseline world is busy")
                self.poll(0.05)
            line.frames.clear()

    def close(self) -> None:
        """Kills every world."""
        for world in (self.contender, self.spare, self.baseline):
            if world is not None:
                world.close()


def _opening(setting: events.Setting) -> dict[str, Any]:
    return {
        "folder": setting.problem_dir,
        "sizes": setting.sizes,
        "preset": setting.preset,
        "dtype": setting.dtype,
        "device": setting.device,
    }


def _key(setting: events.Setting) -> tuple[Any, ...]:
    """What makes a baseline world fit a run: the setting and the problem's files as they are now."""
    folder = Path(setting.problem_dir)
    stamps = tuple((folder / name).stat().st_mtime_ns for name in ("inputs.py", "baseline.py", "problem.toml"))
    return (msgspec.json.encode(setting), stamps)


def _harness_error(text: str, phase: str, jail_name: str) -> events.Result:
    lines = text.strip().splitlines()
    message = lines[0][:300] if lines else "the harness failed"
    failure = events.Failure(phase=phase, message=message, advice=ADVICE[Verdict.HARNESS_ERROR], text=text[:60_000])
    return events.Result(
        verdict=Verdict.HARNESS_ERROR,
        detail=f"{message} (phase {phase}). {ADVICE[Verdict.HARNESS_ERROR]}",
        failure=failure,
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
    """Serves until stdin closes; SIGTERM and SIGINT end it in order."""
    processes.die_with_parent()
    processes.adopt_orphans()
    processes.hide_from_ptrace()
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
        referee.close()


if __name__ == "__main__":
    main()
