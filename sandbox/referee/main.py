"""The referee: the trusted process that owns clock, worlds and verdict. It imports neither kernels nor torch.

    python -m sandbox.referee.main       commands on stdin, events on stdout (sandbox.protocol.events, one JSON object a line)

It ends with all its processes when its stdin closes.
"""

import contextlib
import faulthandler
import os
import resource
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from sandbox.jail.choice import Jail, choose
from sandbox.machine import processes
from sandbox.machine.devices import kind_of
from sandbox.machine.locked_folder import remove_all_leftovers
from sandbox.protocol import events
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import MeasurePeaks, MeasureTransfers, Order, R
from sandbox.protocol.result import Transfers, harness_error_result, joined, unjudged_result
from sandbox.protocol.verdict import Verdict
from sandbox.referee.awaiting import Awaiting, EnginePipe, SettingRefused, Stopped
from sandbox.referee.correctness import CorrectnessCheck
from sandbox.referee.evaluation import Evaluation, Versus
from sandbox.referee.labels import labels
from sandbox.referee.lease import Lease, Urgency, devices_of
from sandbox.referee.run_request import backend_failure, check_files, check_setting, with_sources
from sandbox.referee.wording import lost_a_rank
from sandbox.timing.roofline import Peaks
from sandbox.timing.turns import TimedSide
from sandbox.worlds import deadlines
from sandbox.worlds.contenders import Contenders
from sandbox.worlds.deadlines import TimeSource
from sandbox.worlds.exchange import REFERENCE, Exchange, PreparedSetting, ask
from sandbox.worlds.failures import Deadline, HarnessFailed, WorldFailed
from sandbox.worlds.first_process import WorldSpec
from sandbox.worlds.fork_server import ForkServers
from sandbox.worlds.oracle_world import OracleWorld
from sandbox.worlds.references import References
from sandbox.worlds.starter import WorldStarter
from sandbox.worlds.world import World

ASK_S = 0.1
"""Least seconds between two questions whether somebody more urgent waits."""
END_S = 20
"""Maximum seconds for an orderly end, which removes the folders of the worlds."""
LONGER_FOR_OTHERS = 15
"""Runs of sweeps wait this many times as long, because people go before them."""
UNMEASURED = (HarnessFailed, SettingRefused, WorldFailed, Deadline, Stopped, OSError)
"""The exceptions of a preparation, or of a measurement of this machine, that fails."""
OPTIONAL_WAYS = "NCCL device and NVSHMEM"
"""Names of the ways to move data that need optional libraries."""


class Referee:
    """Serves commands one at a time. Cancels are read during every wait."""

    def __init__(
        self,
        jail: Jail | None = None,
        selector: selectors.BaseSelector | None = None,
        start_processes: Callable[[WorldSpec], World] | None = None,
        timer: TimeSource = time,
    ) -> None:
        """jail: by default the strongest that works on this machine. start_processes: see WorldStarter."""
        self.jail = jail or choose()
        self.selector = selector or selectors.DefaultSelector()
        self.timer = timer
        self.pipe = EnginePipe(self.selector, timer)
        self.emit = self.pipe.emit
        self.await_all = Awaiting(self.poll, self.stopped, timer)
        self.servers = ForkServers()
        start = start_processes or partial(World.start, selector=self.selector, heard=self.hear, servers=self.servers)
        self.starter = WorldStarter(self.jail, start, self.await_all, self.emit, timer)
        self.oracle = OracleWorld(self.starter)
        self.references = References(self.starter)
        self.contenders = Contenders(self.starter)
        self.lease: Lease | None = None
        """That of the run in progress, or of the last one."""
        self._next_question = 0.0
        self.opening = False
        """Whether the oracle and reference worlds open a problem; spares open it meanwhile."""

    def hear(self, world: World, rank: int, text: str) -> None:
        """Reports what a rank printed, if it is the contender's."""
        if self.pipe.running is not None and world is self.contenders.contender:
            self.emit(events.Log(rank=rank, text=text))

    def serve(self) -> None:
        """Serves commands until the engine closes the pipe."""
        self.pipe.open()
        self.emit(events.Ready(pid=os.getpid(), jail=self.jail.name))
        while not self.pipe.hung_up:
            if self.pipe.commands:
                command = self.pipe.commands.popleft()
                if isinstance(command, events.Run):
                    self.judge(command)
                elif isinstance(command, events.Warm) and not self.pipe.commands:
                    self.warm(command.setting)
                elif isinstance(command, events.Calibrate):
                    self.calibrate(command.setting)
                elif isinstance(command, events.TimeTransfers):
                    self.time_transfers(command.setting)
                continue
            self.wait_for_command()

    def wait_for_command(self) -> None:
        """Waits for a short time. Worlds get ready meanwhile, unless a command has arrived, which may be for another problem."""
        self.poll(0.5)
        if not self.pipe.commands:
            with contextlib.suppress(HarnessFailed):  # the next run starts them, and reports the reason
                self.references.renew()
            self.contenders.tend_spares()

    def stopped(self, kind: Kind) -> bool:
        """Whether a wait for answers of this kind ends: the run was cancelled, or a command replaces `warm`."""
        warming = self.opening and self.pipe.running is None
        return self.pipe.stopped() or (warming and bool(self.pipe.commands) and kind in (Kind.READY, Kind.OPENED))

    def poll(self, timeout: float) -> None:
        """Serves whatever is readable."""
        for selected, _ in self.selector.select(max(timeout, 0.0)):
            handler: Callable[[], None] = selected.data
            handler()
        if self.opening:
            self.contenders.open_spares()

    # --- the work of each command ----------------------------------------------------------------------------

    def warm(self, setting: events.Setting) -> None:
        """Prepares worlds for a setting, until the next command. The next run reports failures."""
        try:
            check_setting(setting)
            count = kind_of(setting.device).pace.references_for(None)
            self.take_references(self.prepare_setting(setting, count), setting, count)
            self.contenders.prepare_spare(setting)
        except Stopped:  # the next command uses the same worlds
            pass
        except UNMEASURED:
            self.oracle.drop()

    def calibrate(self, setting: events.Setting) -> None:
        """Measures this machine's peaks: those of the slowest rank."""
        try:
            measured, seconds = self._measured(setting, MeasurePeaks(), deadlines.PREPARE)
        except UNMEASURED as error:
            self.emit(events.Fatal(message=f"calibration failed: {error}"))
            return
        peaks = {
            name: (max if name.endswith(("_us", "_ms")) else min)(peaks[name] for peaks in measured)
            for name in measured[0]
        }
        self.emit(events.Calibrated(world=setting.world, device=setting.device, peaks=peaks, seconds=seconds))

    def time_transfers(self, setting: events.Setting) -> None:
        """Times transfers between the ranks."""
        try:
            found, seconds = self._transfers(setting)
        except UNMEASURED as error:
            self.emit(events.Fatal(message=f"timing transfers failed: {error}"))
            return
        self.emit(events.TransfersTimed(world=setting.world, device=setting.device, transfers=found, seconds=seconds))

    def _transfers(self, setting: events.Setting) -> tuple[Transfers, float]:
        """The transfers and their seconds. A fault in an optional library loses no other times. Raises as `_measured`."""
        measured, seconds = self._measured(setting, MeasureTransfers(), deadlines.PREPARE)
        found = joined(measured)
        if not kind_of(setting.device).on_gpus:
            return found, seconds
        order = MeasureTransfers(backends=True)
        try:
            more, longer = self._measured(setting, order, deadlines.BACKENDS)
        except Stopped:
            raise
        except UNMEASURED as error:
            why = {OPTIONAL_WAYS: str(error).strip().rpartition("\n")[-1]}
            return found.beside(Transfers(found.sizes, [], why)), seconds
        return found.beside(joined(more)), seconds + longer

    def _measured(self, setting: events.Setting, order: Order[R], limit: float) -> tuple[list[R], float]:
        """The oracle world's replies, and their seconds. No other world runs and no other arena times meanwhile.

        Raises:
            UNMEASURED: one of these; the oracle world has then been dropped.
        """
        try:
            self.contenders.drop_spares()
            self.references.drop()
            world = self.oracle.open(setting)
            with self.leased(setting):
                started = self.timer.monotonic()
                return ask(self.await_all, world, order, limit), self.timer.monotonic() - started
        except UNMEASURED:
            self.oracle.drop()
            raise

    def judge(self, run: events.Run) -> None:
        """Judges one run, from RunStarted to its last event."""
        self.pipe.begin_run(run.run_id)
        evaluation: Evaluation | None = None
        started = self.timer.monotonic()
        digest = ""
        try:
            own = run.is_baseline and run.versus is None
            run = with_sources(run)
            digest = run.kernel.sha256
            self.emit(events.RunStarted(setting=run.setting, kernel_name=run.kernel_name, sha256=digest))
            check_setting(run.setting)
            check_files(run)
            if failure := backend_failure(run):
                result = unjudged_result(Verdict.LOAD_ERROR, failure, self.jail.name, sealed=True)
                self.emit(events.Finished(sha256=digest, result=result))
                return
            if kind_of(run.setting.device).outlives_kernels and (fault := self.oracle.current_gpu_fault()):
                raise HarnessFailed(f"{fault}. Measuring there is impossible until the fault is gone")
            prepared = self.prepare(run)
            rival = self.contenders.take_rival(run.setting) if run.versus is not None else None
            begin = partial(self.new_evaluation, run, prepared, rival, started)
            evaluation, judge = begin()
            result = self.with_room(run, evaluation, judge)
            if own and lost_a_rank(result):
                self.end_contenders()
                evaluation, judge = begin()
                result = judge()
                if lost_a_rank(result):
                    raise HarnessFailed(f"the baseline lost a rank twice: {result.detail}")
            result = self.completed(run, result)
            if result.verdict is Verdict.PASS and result.seconds.compile > 0:
                evaluation.correctness.contender.processes.keep_compiled(digest)
            result = self.measured_on(run, digest, evaluation, result)
            if own and result.verdict is Verdict.PASS and not prepared.varies and not self.pipe.stopped():
                self.contenders.keep()
            self.listen_on(0.3 if evaluation.correctness.timed_out else 0.02 * (result.verdict is not Verdict.PASS))
            if result.verdict is Verdict.PASS and (learned := evaluation.learned_offsets()):
                self.emit(events.WorldOffsets(setting=run.setting, masses=learned))
            self.emit(events.Finished(sha256=digest, result=result))
        except Stopped:
            self.cancelled(run, evaluation)
        except SettingRefused as refused:
            self.oracle.drop()
            self.emit(events.Refused(message=str(refused).strip(), advice=refused.advice))
        except (HarnessFailed, WorldFailed, Deadline, OSError) as error:
            self.oracle.drop()
            self.references.drop()
            self.emit(events.Finished(sha256=digest, result=self.harness_error(error, _phase(evaluation))))
        finally:
            self.pipe.end_run()
            self.end_contenders()
            if not self.pipe.hung_up and evaluation is not None:
                self.references.note_run(self.oracle.prepared, run.setting)
                with contextlib.suppress(HarnessFailed):  # the next run starts one, and reports the reason
                    self.contenders.prepare_spare(run.setting, 1 if run.versus is None else 2)

    def cancelled(self, run: events.Run, evaluation: Evaluation | None) -> None:
        """Ends a cancelled run with its result if only its timing was cut short."""
        self.pipe.end_run()
        self.oracle.finish_orders(self.poll)
        phase, found = _phase(evaluation), None
        if evaluation is not None:
            self.references.drop_busy()
            found = evaluation.untimed()
        if found is not None:
            found = msgspec.structs.replace(found, jail=self.jail.name, labels=labels(run.kernel))
        self.emit(events.Cancelled(run_id=run.run_id, phase=phase, result=found))

    def harness_error(self, error: Exception, phase: str) -> events.Result:
        """The result of a run that the harness could not finish."""
        message = str(error).strip()
        text = error.text.strip() if isinstance(error, WorldFailed) and error.text else message
        message = message.splitlines()[0][:300] if message else "the harness failed"
        advice = (error.advice if isinstance(error, HarnessFailed) else "") or processes.low_limits()
        return harness_error_result(phase, message, "" if advice else text, self.jail.name, True, advice)

    def with_room(self, run: events.Run, evaluation: Evaluation, judge: Callable[[], events.Result]) -> events.Result:
        """What judge returns or raises; OUT_OF_MEMORY if trusted worlds lack memory that they have without this kernel."""
        exchange, kind = evaluation.correctness.exchange, kind_of(run.setting.device)
        try:
            return judge()
        except HarnessFailed as failed:
            may_lack = "out of memory" in str(failed) and exchange.phase != "load"
            alone = run.versus is None and not kind.used_by_others(kind.gpus(run.setting.world))
            if run.is_baseline or not may_lack or not alone or exchange.prepared.references_of(2) < 2:
                raise
        self.oracle.drop()
        self.references.drop()
        self.end_contenders()
        self.take_references(self.prepare(run), run.setting, 1)
        verdict, message = Verdict.OUT_OF_MEMORY, "the baseline has no room beside this kernel's memory"
        return evaluation.result(verdict, exchange.failure(message, verdict))

    def completed(self, run: events.Run, result: events.Result) -> events.Result:
        """A result with the jail, and the labels of a kernel that passed."""
        result = msgspec.structs.replace(result, jail=self.jail.name)
        if result.verdict is not Verdict.PASS:
            return result
        passed = [f"timed beside an idle lock of {self.lease.passed}"] if self.lease and self.lease.passed else []
        return msgspec.structs.replace(result, labels=labels(run.kernel) + result.labels + passed)

    def measured_on(self, run: events.Run, digest: str, evaluation: Evaluation, result: events.Result) -> events.Result:
        """The result after measuring on, if the run asks for it. Ends at any command, and with what was complete."""
        if run.live_s <= 0 or not evaluation.may_measure_on(result):
            return result
        self.emit(events.Judged(sha256=digest, result=result))
        try:
            for sharper in evaluation.measure_on(run.live_s, lambda: bool(self.pipe.commands)):
                result = self.completed(run, sharper)
                self.emit(events.Judged(sha256=digest, result=result))
        except Stopped:
            self.pipe.cancelled = False
            self.oracle.finish_orders(self.poll)
            self.references.drop_busy()
            self.pipe.cancelled = True
        return result

    def end_contenders(self) -> None:
        """Kills the contender and its rival after their run."""
        for killed in self.contenders.end():
            self.oracle.examine(killed)

    def new_evaluation(
        self, run: events.Run, prepared: PreparedSetting, rival: World | None, started: float
    ) -> tuple[Evaluation, Callable[[], events.Result]]:
        """The evaluation of a new contender, and the function that judges the whole run."""
        contender = self.contenders.take(run.setting)
        peaks = Peaks.of(run.peaks, run.setting)
        if rival is None:
            exchange = Exchange(prepared, contender, self.await_all, self.emit, self.timer)
            evaluation = Evaluation(CorrectnessCheck(run, exchange), peaks)
            judge: Callable[[], events.Result] = evaluation.judge
        else:
            versus = Versus(run, prepared, (contender, rival), self.await_all, self.emit, peaks, self.timer)
            evaluation, judge = versus.evaluation, versus.judge
        if run.rounds != 0:
            evaluation.open_baseline = partial(self.baseline_side, evaluation.correctness)
        evaluation.correctness.started = started
        against = f" against {run.versus.kernel_name}" if run.versus is not None else ""
        evaluation.leased = partial(self.leased, run.setting, expected_s=run.budget_s, against=against)
        evaluation.give_way = partial(self.give_way, run.setting)
        return evaluation, judge

    def baseline_side(self, correctness: CorrectnessCheck) -> TimedSide:
        """The timed side of the references, or HarnessFailed. Emits the phase `prepare` if there is something to do."""
        run, prepared = correctness.run, correctness.exchange.prepared
        count = kind_of(run.setting.device).pace.references_for(run.rounds)
        loaded = self.references.are_loaded(prepared, count)
        with contextlib.nullcontext() if loaded else correctness.phase("prepare", deadlines.PREPARE):
            worlds = self.take_references(prepared, run.setting, count)
        if len(worlds) < count and not loaded:
            self.emit(events.Log(text=f"device memory fits {len(worlds)} of {count} reference worlds\n"))
        exchange = Exchange(prepared, worlds[0], self.await_all, self.emit, self.timer, REFERENCE)
        return TimedSide(exchange, worlds)

    @contextlib.contextmanager
    def leased(
        self, setting: events.Setting, urgency: int = 0, expected_s: float = 0.0, against: str = ""
    ) -> Iterator[None]:
        """Holds the lease of the devices within a block, with spares stopped. Waits for other arenas first."""
        try:
            self.lease = Lease(devices_of(setting), urgency=Urgency(urgency), expected_s=expected_s)
        except OSError as error:
            raise HarnessFailed(f"cannot lock this machine's devices for timing: {error}") from None
        with contextlib.closing(self.lease):
            self._await_turn(self.lease, Path(setting.problem_dir).name + against)
            with self.contenders.spares_stopped():
                yield

    def _await_turn(self, lease: Lease, what: str) -> None:
        """Takes a lease, after those whose turn is earlier. Emits the place in the queue when it changes. what: for others.

        Raises:
            HarnessFailed: others have timed for too long.  Stopped: the run was cancelled.
        """
        started = self.timer.monotonic()
        longest = deadlines.LEASE * (1 if lease.urgency is Urgency.PERSON else LONGER_FOR_OTHERS)
        told: events.Waiting | None = None
        while not lease.take(what):
            place, count = lease.place()
            waiting = events.Waiting(holder=lease.holder(), place=place, waiting=count)
            if told is None or waiting != told:
                self.emit(waiting)
                if told is None or waiting.holder not in (None, told.holder):
                    self.emit(events.Log(text=f"waiting: another run is timing ({waiting.words})\n"))
                told = waiting
            if self.pipe.stopped():
                raise Stopped
            waited = self.timer.monotonic() - started
            if waited > deadlines.IDLE_LEASE and lease.pass_by_idle():
                self.emit(events.Log(text=f"passed by a lock that {lease.passed} holds without working\n"))
                return
            if waited > longest:
                raise HarnessFailed(f"waited {longest:.0f} s for another arena that is timing on these devices")
            self.poll(0.1)

    def give_way(self, setting: events.Setting, stop: Callable[[], None]) -> float:
        """Lets more urgent runs of this machine go first, if some wait. Returns the seconds that it took.

        stop: stops this run's worlds. Called between rounds; asks at most every ASK_S.
        """
        now = self.timer.monotonic()
        if self.lease is None or self.lease.urgency is Urgency.PERSON or now < self._next_question:
            return 0.0
        self._next_question = now + ASK_S
        if not self.lease.is_wanted():
            return 0.0
        stop()
        self.lease.give_way()
        self._await_turn(self.lease, Path(setting.problem_dir).name)
        return self.timer.monotonic() - now

    def prepare(self, run: events.Run) -> PreparedSetting:
        """The prepared setting of a run. Emits the phase `prepare` if there is something to do."""
        if self.oracle.is_prepared(run.setting):
            return self.oracle.prepare(run.setting)
        count = kind_of(run.setting.device).pace.references_for(run.rounds) if run.rounds != 0 else 0
        started = self.timer.monotonic()
        self.emit(events.PhaseStarted(phase="prepare", limit_s=deadlines.PREPARE))
        prepared = self.prepare_setting(run.setting, count, 1 if run.versus is None else 2)
        self.emit(events.PhaseEnded(phase="prepare", seconds=self.timer.monotonic() - started))
        return prepared

    def prepare_setting(self, setting: events.Setting, count: int, spares: int = 1) -> PreparedSetting:
        """The prepared setting. Spares start meanwhile, and then `count` reference worlds.

        The correctness check needs no references. On four H200, six worlds that start at once take 19 s, one takes 4 s.
        """
        with self.spares_opened():
            if not self.oracle.is_prepared(setting):
                self.oracle.start(setting)
                self.contenders.prepare_spare(setting, spares)
                self.references.leave_other_problems(setting)  # their memory is free before the oracle world needs it
            prepared = self.oracle.prepare(setting)
        self.references.start(setting, count)
        return prepared

    def take_references(self, prepared: PreparedSetting, setting: events.Setting, count: int) -> list[World]:
        """`count` reference worlds with the baseline loaded, or as many as fit into memory."""
        with self.spares_opened():
            return self.references.take(prepared, setting, count)

    @contextlib.contextmanager
    def spares_opened(self) -> Iterator[None]:
        """Lets spares open their problem within a block, while the oracle or reference worlds do."""
        self.opening = True
        try:
            yield
        finally:
            self.opening = False

    def close(self) -> None:
        """Kills every world, all at once because each takes until its last process is gone, and the fork servers."""
        contenders, oracle = self.contenders, self.oracle.world
        worlds = [contenders.contender, contenders.rival, oracle, *contenders.spares, *self.references.worlds]
        with ThreadPoolExecutor(len(worlds)) as pool:
            list(pool.map(World.close, filter(None, worlds)))
        self.servers.close()

    def listen_on(self, seconds: float) -> None:
        """Reads what the ranks still print, such as their stacks, for some seconds."""
        until = self.timer.monotonic() + seconds
        while self.timer.monotonic() < until:
            self.poll(until - self.timer.monotonic())


def _phase(evaluation: Evaluation | None) -> str:
    return evaluation.correctness.exchange.phase if evaluation else "prepare"


def _set_limits() -> None:
    """Lets files be as large and many as allowed, and readable for the worlds: as root these have other users."""
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
        resource.setrlimit(limit, (resource.getrlimit(limit)[1],) * 2)
    refused = 0o022 if os.geteuid() == 0 else 0o077
    os.umask(os.umask(refused) & refused)


def main() -> None:
    """Serves until stdin closes or SIGTERM arrives. The engine handles SIGINT."""
    faulthandler.enable()  # its last words say where it crashed
    processes.die_with_parent(number=signal.SIGTERM)
    processes.adopt_orphans()
    processes.hide_from_ptrace()
    _set_limits()
    remove_all_leftovers()
    referee = Referee()

    def end(*_: object) -> None:
        referee.pipe.hung_up = True
        signal.alarm(END_S)  # its signal kills this process

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        referee.serve()
    except BaseException as error:
        referee.emit(events.Fatal(message=f"the referee failed: {error!r}"))
        raise
    finally:
        referee.close()


if __name__ == "__main__":
    main()
