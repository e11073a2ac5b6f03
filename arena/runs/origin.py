"""The kernel that a model starts from: a file, a folder, a named kernel, or the kernel of a run."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from arena.errors import UsageError
from arena.paths import Paths
from arena.profile.profiling import kept_profile
from arena.records.header import read_events, read_header
from arena.records.index import stored
from arena.runs.judge import Judgement
from arena.workspace.kernels import read_kernel
from arena.workspace.named_kernels import BASELINE, named_kernel
from problems.catalogue import Catalogue
from problems.specification import Problem
from sandbox.protocol.events import Contender, Finished, Setting
from sandbox.protocol.kernel_files import Kernel


@dataclass(frozen=True)
class Origin:
    """A kernel to improve, with its result and its profile where they are known."""

    name: str
    """Its name in results: "house.py", "kernel.py"."""
    kernel: Kernel
    judgement: Judgement | None = None
    """Its newest result in this setting; None without one."""
    player: str = "you"
    """The player under whose name its result is stored when it is judged."""
    profile: str = ""
    """Its newest profile as text (`arena.profile.profiling`); empty if there is none."""

    @property
    def sha256(self) -> str:
        """Hash of the kernel's files."""
        return self.kernel.sha256

    @property
    def rival(self) -> Contender:
        """The kernel as it takes the baseline's place in a run."""
        return Contender(self.name, self.kernel.source, self.kernel.files)


def find_origin(word: str, problem: Problem, setting: Setting, catalogue: Catalogue, paths: Paths) -> Origin:
    """Returns the kernel that a word stands for: a path, `house`, another named kernel, or a run's id.

    Raises:
        UsageError: there is no such kernel, or the run belongs to another problem.
    """
    if word == BASELINE:
        raise UsageError(
            "every model starts from the baseline", "name another kernel: a file, house, or the id of a run"
        )
    if named := named_kernel(word, problem, catalogue, setting.device):
        return known_origin(named[0], Kernel(named[1]), problem, setting, paths, word)
    journal = paths.runs / f"{word}.jsonl"
    if not Path(word).exists() and Path(word).name == word and journal.is_file():
        return _of_run(journal, problem, setting, paths)
    found = read_kernel(Path(word))
    return known_origin(found.name, found.kernel, problem, setting, paths)


def _of_run(journal: Path, problem: Problem, setting: Setting, paths: Paths) -> Origin:
    try:
        header = read_header(journal)
    except (OSError, ValueError):
        raise UsageError(f"{journal} cannot be read", "name a file, house, or the id of another run") from None
    if header.problem_id != problem.id:
        what = f"the run {header.run_id} is of problem {header.problem_id} {header.slug}"
        raise UsageError(what, f"name a run of problem {problem.id} {problem.slug}")
    return known_origin(header.kernel_name, header.kernel, problem, setting, paths, header.player)


def known_origin(
    name: str, kernel: Kernel, problem: Problem, setting: Setting, paths: Paths, player: str = "you"
) -> Origin:
    """Returns a kernel with its newest result in this setting and its profile, if there are any."""
    known = _newest(kernel.sha256, problem, setting, paths)
    return Origin(name, kernel, known, player, kept_profile(paths, kernel.sha256))


def _newest(sha256: str, problem: Problem, setting: Setting, paths: Paths) -> Judgement | None:
    """Returns the newest timed result in this setting, else the newest one."""
    known = stored(paths, lambda store: store.kernels(sha256)) or []
    entries = [entry for entry in known if entry.problem_id == problem.id and not entry.voided]
    for entry in sorted(entries, key=lambda entry: (bool(entry.outcome), entry.created), reverse=True):
        with suppress(OSError, ValueError):
            path = paths.runs / f"{entry.run_id}.jsonl"
            header = read_header(path)
            results = [event.result for event in read_events(path) if isinstance(event, Finished)]
            if header.setting == setting and results:
                return Judgement(header, results[-1])
    return None
