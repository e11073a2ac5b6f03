"""One kernel of one problem: its file, drafts and runs, without widgets."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import structs
from textual.content import Content

from arena.errors import ArenaError
from arena.machine.calibration import peaks_for
from arena.profile.profile_process import ProfileRequest
from arena.records.code_hash import code_hash
from arena.records.header import read_events, read_header
from arena.records.run_record import RunRecord, result_in, view
from arena.runs.judge import RunInProgress, RunRequest
from arena.runs.run_state import RunState
from arena.setting_choice import Choice, choose_setting
from arena.words.headline import advice_words
from arena.workspace.kernel_folder import main_file, shown_name
from arena.workspace.kernels import read_kernel
from arena.workspace.named_kernels import BASELINE
from problems.specification import Problem
from sandbox.machine.devices import kind_of
from sandbox.protocol import events
from sandbox.protocol.kernel_files import MAIN, Kernel
from sandbox.protocol.result import BareResult
from sandbox.protocol.verdict import Verdict
from screens import figures
from screens.actions import key_of
from screens.kernel.other_sizes_run import OtherSizesRun
from screens.kernel.run_update import LogLine, RunUpdate, lines_of, place_of
from screens.kernel_buffer import OpenKernel
from screens.services import Services

MEASURE_ON = (4, 16)
"""Budgets of the first and of later longer measurements of a revision, as multiples of the normal budget."""


class KernelSession(OpenKernel):
    """The state of one kernel for the kernel screen, and the operations on it. If one raises ArenaError, nothing was started."""

    def __init__(self, services: Services, problem: Problem, path: Path | None = None) -> None:
        """`path` None means the user's own kernel in the workspace that was open last."""
        super().__init__(services.workspace, problem, path or services.workspace.last_open(problem))
        self.services = services
        self.choice = Choice()
        self.state = RunState()
        self.others = OtherSizesRun()
        self.changed = True
        """Whether the state changed since the screen was last drawn."""
        self.waiting_since: float | None = None
        """When the queued run was requested, on this process's monotonic clock in seconds; None: none is queued."""
        self._new_lines: list[LogLine] = []
        self._new_run = False
        self._clock_offset = 0.0
        self._request: RunRequest | None = None
        """The newest request."""
        self._judged: RunRequest | None = None
        """The request whose run `state` shows."""
        self._cancelled = False
        self.from_journal = False
        """Whether `state` is of an earlier run; see `show_earlier`."""
        self.records: list[RunRecord] = []
        """The earlier results of this problem, of all players, newest first."""
        self.records_known = False
        """Whether the earlier results have been read."""
        self._longer = 0
        """How often `measure_on` has measured the newest revision longer."""

    # --- runs ----------------------------------------------------------------------------------------------

    def queue(self) -> None:
        """Marks a run as queued, until its first event arrives."""
        self._cancelled = False
        self.waiting_since = time.monotonic()
        self.changed = True

    def unqueue(self) -> None:
        """Marks the queued run as not queued any more, because it does not start."""
        self.waiting_since = None
        self.changed = True

    async def cancel(self) -> None:
        """Cancels the run in progress, even one that has not reached the engine yet."""
        self._cancelled = True
        await self.services.engine.cancel()

    def setting(self) -> events.Setting:
        """Returns the setting of the next run. Raises ArenaError if the choice does not fit the problem or this machine."""
        return choose_setting(self.problem, self.choice, self.services.settings)

    async def run(self, kernel: Kernel, versus: events.Contender | None = None, *, queued: bool = False) -> None:
        """Starts a run of the kernel, which cancels a run in progress.

        versus: a kernel that replaces the baseline. queued: `queue` was called for this run, and perhaps `cancel`.
        """
        await self._judge(self._new_request(shown_name(self.path), kernel, str(self.path), versus), queued=queued)

    async def run_baseline(self) -> None:
        """Starts a run of the baseline against itself, as `run` does."""
        await self._judge(self._new_request("baseline", Kernel(""), ""))

    @property
    def can_measure_on(self) -> bool:
        """Whether the newest run has ended with a correct kernel."""
        return self._request is not None and not self.judging and self.state.verdict is Verdict.PASS

    async def measure_on(self) -> float:
        """Judges the revision of the newest run again in its setting, with a longer budget.

        Returns:
            The budget in seconds.
        """
        assert self._request is not None, "can_measure_on says whether there is one"
        factor = MEASURE_ON[min(self._longer, len(MEASURE_ON) - 1)]
        longer = self._longer + 1
        request = structs.replace(self._request, budget_s=self.services.settings.seconds * factor)
        await self._judge(request)
        self._longer = longer
        return request.budget_s

    async def judge_other_sizes(self) -> None:
        """Judges the kernel of `state` at other sizes, and times it there if it was faster than the baseline."""
        request, result = self._judged, self.state.told
        assert request is not None, "can_measure_on says whether there is one"
        timed = result is not None and result.outcome == "faster" and request.versus is None
        try:
            beside = structs.replace(request, versus=None, other_than=self.state.run_id)
            await self.others.judge(self.services.engine, beside, timed=timed)
        finally:
            self.changed = True

    def verdict_of(self, kernel: Kernel) -> str:
        """Names what was judged: "revision 1a2b3c4d", or "1a2b3c4d against 5e6f7a8b" for `kernel` itself.

        Empty if that is `kernel` and the baseline, or there is no verdict.
        """
        judged = self._judged
        if judged is None or self.state.verdict is None:
            return ""
        if judged.is_baseline:
            return "the baseline against itself"
        of = f"{'revision ' * (judged.kernel != kernel)}{self.state.sha256[:8]}"
        if judged.versus is not None:
            return f"{of} against {_rival_words(judged.versus)}"
        return "" if judged.kernel == kernel else of

    @property
    def most_s(self) -> float | None:
        """Seconds that timing may take in the newest run; None: not known."""
        return self._request.most_s if self._request is not None else None

    def _new_request(self, name: str, kernel: Kernel, path: str, versus: events.Contender | None = None) -> RunRequest:
        self._longer = 0
        return view(
            RunRequest, kernel, self.services.settings,
            problem=self.problem, setting=self.setting(), kernel_name=name, kernel_path=path, versus=versus,
            budget_s=self.services.settings.seconds,
        )  # fmt: skip

    def judges(self, kernel: Kernel) -> bool:
        """Whether the run that is queued or in progress is of this kernel, in the setting of the next run."""
        asked = self._request
        if not self.busy or asked is None or asked.versus is not None or asked.kernel_name == BASELINE:
            return False
        with suppress(ArenaError):
            return asked.kernel == kernel and asked.setting == self.setting()
        return False

    async def _judge(self, request: RunRequest, *, queued: bool = False) -> None:
        self._request = request
        if not queued:
            self.queue()
        try:
            await self.others.stop(self.services.engine)
            self.services.last_runs[self.path] = request, await self.services.engine.judge(request)
            if self._cancelled:
                await self.services.engine.cancel()
        except ArenaError:
            self.unqueue()
            raise

    @property
    def last_run(self) -> RunInProgress | None:
        """The newest run of this kernel, even if another screen started it."""
        return last[1] if (last := self.services.last_runs.get(self.path)) is not None else None

    def take_up(self, run: RunInProgress) -> None:
        """Continues with the last run, which another screen started, as if this session had started it."""
        self._request, _ = self.services.last_runs[self.path]
        for event in run.events_so_far:
            self.apply(event)
        if run.run_id == self.state.run_id:
            self._clock_offset -= time.monotonic() - run.last_at
        elif not run.ended:
            self.waiting_since = run.last_at

    async def profile_request(self) -> tuple[ProfileRequest, str]:
        """Returns a request to profile the saved kernel in the setting of the next run, and the kernel's SHA-256."""
        kernel = await asyncio.to_thread(read_kernel, self.path)
        setting = self.setting()
        request = ProfileRequest(
            setting=setting,
            kernel_name=main_file(self.path).name,
            source=kernel.text or "\n",  # an empty source would mean the baseline
            files=kernel.files,
            readable=[str(folder) for folder in self.services.settings.problem_folders],
            peaks=await asyncio.to_thread(peaks_for, self.services.paths.calibrations, setting),
        )
        return request, kernel.sha256

    def result_of(self, sha256: str, setting: events.Setting) -> BareResult | None:
        """Returns the last result of this kernel in this setting, or None."""
        if self.state.sha256 == sha256 and self.state.setting == setting and self.state.told is not None:
            return self.state.told
        return next((each for each in self.in_setting(self.records) if each.sha256 == sha256), None)

    def apply(self, event: events.AnyEvent) -> None:
        """Applies one event to the state."""
        if event.at:
            self.set_clock(event.at)
        if isinstance(event, events.RunStarted):
            self._new_run = True
            self.from_journal = False
            self._judged = self._request
            self.others.clear()
            self._new_lines.clear()
        overtaken = isinstance(event, events.Cancelled) and event.run_id == self.state.run_id
        if (
            isinstance(event, events.RunStarted | events.Finished | events.Refused | events.Fatal | events.Cancelled)
            and not overtaken
        ):
            self.waiting_since = None
        failed = self.state.failure is not None and not isinstance(event, events.RunStarted)
        told = self.state.verdict if failed else None
        self.state.apply(event)
        self._new_lines += lines_of(event, told)
        if isinstance(event, events.Cancelled) and (measured := figures.so_far_words(self.state)):
            self._new_lines.append(LogLine(f"not timed{measured}", kind="note"))
        self.changed = True

    async def refresh_standing(self, run_id: str = "") -> None:
        """Reads the results again. With a `run_id`, first waits until that run's result is stored."""
        if run_id:
            await self.services.engine.recorded(run_id)
        await self.services.refresh_standings()
        await self.read_records()

    async def read_records(self) -> None:
        """Reads the earlier results of this problem again. If they cannot be read, the last ones stay."""
        async with self.services.reading:
            with suppress(ArenaError):
                self.records = await asyncio.to_thread(lambda: self.services.store.history(self.problem.id, None))
        self.records_known = self.changed = True

    async def show_earlier(self, record: RunRecord) -> list[events.AnyEvent]:
        """Shows an earlier run as if it had just ended, from its journal; returns its events, none if it has no whole one."""
        path = self.services.paths.runs / f"{record.run_id}.jsonl"
        try:
            header = await asyncio.to_thread(read_header, path)
            told = await asyncio.to_thread(lambda: list(read_events(path)))
        except (OSError, ValueError):
            return []
        results = [result for event in told if (result := result_in(header, event)) is not None]
        if not results or self.busy:  # a run began meanwhile
            return []
        self._request = self._new_request(shown_name(self.path), header.kernel, str(self.path))  # for a longer run
        for event in told:
            self.apply(event)
        if self.state.running:  # its process was killed while it measured on
            self.apply(view(events.Finished, record, result=results[-1]))
        self.from_journal = True
        return told

    def earlier(self, kernel: Kernel) -> RunRecord | None:
        """The newest result of this code in the setting of the next run, whoever ran it; None: there is none."""
        code = code_hash(kernel)
        same = [record for record in self.records if record.code == code and not record.voided]
        told = (record for record in self.in_setting(same) if record.verdict is not Verdict.HARNESS_ERROR)
        return next(told, None)

    def told_of(self, kernel: Kernel | Path) -> Content:
        """The newest result of a kernel, or of a file or folder, as `earlier` finds it; "not run" if there is none."""
        with suppress(ArenaError):
            record = self.earlier(kernel if isinstance(kernel, Kernel) else read_kernel(kernel).kernel)
            if record is not None:
                words, colour = figures.result_part(record)
                return Content.assemble(figures.verdict_part(record.verdict), (f"  {words}", f"${colour}"))
        return Content.styled("not run", "$muted")

    def in_setting(self, records: Sequence[RunRecord]) -> list[RunRecord]:
        """The results in the setting of the next run."""
        try:
            setting = self.setting()
        except ArenaError:
            return []
        wanted = (setting.device, setting.world, setting.dtype, setting.sizes)
        return [each for each in records if (each.device, each.world, each.dtype, each.sizes) == wanted]

    def set_clock(self, at: float) -> None:
        """Sets the current time on the events' clock to `at`, in seconds."""
        self._clock_offset = time.monotonic() - at

    @property
    def now(self) -> float:
        """The current time on the events' clock, in seconds."""
        return time.monotonic() - self._clock_offset

    @property
    def busy(self) -> bool:
        """Whether a run is queued or in progress, at other sizes included."""
        return self.waiting_since is not None or self.state.running or self.others.running

    @property
    def judging(self) -> bool:
        """Whether it is busy with more than measuring on, which gives way to every run."""
        return self.busy and not (self.state.measuring_on and self.waiting_since is None)

    @property
    def waited(self) -> float | None:
        """Seconds since the queued run was requested; None: none is queued."""
        return None if self.waiting_since is None else time.monotonic() - self.waiting_since

    @property
    def place(self) -> tuple[str, int] | None:
        """The file and the line of the failure, if it names them."""
        return place_of(self.state.failure, self._judged.files if self._judged is not None else ())

    def take_update(self, *, with_keys: bool) -> RunUpdate:
        """Returns the state of the run, with the log lines since the last call. with_keys: names keys that run kernels."""
        result = self.state.result
        keymap = self.services.settings.keymap
        key = key_of("measure_on", keymap) if with_keys else ""
        advice = advice_words(result.advice, key) if result is not None and result.advice else ""
        setting = self.state.setting
        timed = result is not None and result.speedup is not None
        can = timed and setting is not None and not kind_of(setting.device).on_gpus
        versus = self._judged.versus if self._judged is not None else None
        update = RunUpdate(
            self.state,
            self._new_run,
            self._new_lines,
            advice,
            key_of("profile", keymap) if can and with_keys else "",
            _rival_words(versus) if versus is not None else "",
            self.others.update,
            key_of("jump", keymap),
            self.place,
        )
        self._new_run, self._new_lines = False, []
        self.changed = False
        return update


def _rival_words(rival: events.Contender) -> str:
    """The hash of a revision: "1a2b3c4d". The name of another file or folder, without its ending."""
    return rival.kernel_name.removesuffix(f"/{MAIN}").removesuffix(".py").removeprefix("revision-")
