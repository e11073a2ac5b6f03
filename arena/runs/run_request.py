"""A request to judge a kernel, and the notices that an engine sends besides the events of a run."""

import time
from dataclasses import dataclass, field

from arena.machine.fingerprint import this_machine
from arena.records.header import RunHeader, new_id
from arena.records.run_record import view
from arena.workspace.named_kernels import BASELINE
from problems.specification import Problem
from sandbox.protocol.events import Finished, Rival, Setting
from sandbox.protocol.kernel_files import Files, kernel_hash
from sandbox.protocol.result import harness_error_result

MOST_ROUNDS = 10_000
PERSON, SWEEP = 0, 1
"""As `sandbox.referee.lease.Urgency`."""


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One kernel to judge in one setting."""

    problem: Problem
    setting: Setting
    kernel_name: str
    """Shown in tracebacks; the word `baseline` with an empty source runs the baseline against itself."""
    source: str
    files: Files = field(default_factory=dict)
    """The other files of a kernel of several files; then `source` is the text of its kernel.py."""
    kernel_path: str = ""
    player: str = "you"
    rounds: int | None = None
    """None = as many as fit the measuring time; 0 = correctness only."""
    budget_s: float = 2.5
    """Measuring time in seconds. Timing stops when both clocks can conclude, at the latest after this time."""
    versus: Rival | None = None
    """Another kernel in the baseline's place, as in a duel's final. Without `origin`, such a run is in no index."""

    origin: str = ""
    """SHA-256 of the kernel that the player started from. With `versus`, that kernel takes the baseline's place."""
    energy: bool = False
    """Whether to measure the energy of a call, too."""
    live_s: float = 0.0
    """Seconds that measuring goes on after the verdict, unless something newer is asked."""
    urgency: int = PERSON
    """Who waits for the devices first: PERSON or SWEEP."""
    other_than: str = ""
    """For a run at other sizes: the id of the same kernel's run that it belongs to."""

    @property
    def most_s(self) -> float | None:
        """Seconds that timing may take; None where the number of rounds is given."""
        return self.budget_s if self.rounds is None else None


@dataclass(frozen=True)
class Notice:
    """A message for the user that is not an event of a run: a full disk, a referee that died."""

    message: str
    advice: str = ""


def header_of(request: RunRequest, machine: str = "") -> RunHeader:
    """Returns the first line of a run's journal, with a new id from the current time and random digits.

    machine: fingerprint of the machine that runs it, if that is not this one.
    """
    created = time.time()
    problem = request.problem
    source = request.source if request.source or request.kernel_name != BASELINE else problem.baseline_source
    return view(
        RunHeader, request, problem,
        run_id=new_id(created),
        created=created,
        problem_id=problem.id,
        sha256=kernel_hash(source, request.files),
        source=source,
        preset_sizes=request.setting.sizes == problem.presets.get(request.setting.preset),
        versus=request.versus.kernel_name if request.versus is not None else "",
        correctness_only=request.rounds == 0,
        machine=machine or this_machine(request.setting.device).digest,
    )  # fmt: skip


def harness_error(header: RunHeader, phase: str, message: str, text: str = "") -> Finished:
    """Returns the end of a run whose referee failed."""
    result = harness_error_result(phase, message, text)
    return Finished(run_id=header.run_id, sha256=header.sha256, result=result)
