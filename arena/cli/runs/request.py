"""Makes the run request from the arguments of `run`, `watch` and `profile`."""

import sys
from pathlib import Path

from arena.cli.options import CliSession
from arena.errors import UsageError
from arena.runs.run_request import RunRequest
from arena.setting_choice import Choice, choose_setting
from arena.workspace.kernels import kernel_text, read_kernel
from arena.workspace.named_kernels import BASELINE, HOUSE, VARIANTS, named_kernel
from problems.specification import Problem
from sandbox.protocol.events import Rival
from sandbox.protocol.kernel_files import Kernel

STDIN = "-"


def make_request(
    session: CliSession,
    problem: str,
    kernel: Path,
    choice: Choice,
    rounds: int | None,
    budget: float | None,
    against: Path | None = None,
) -> RunRequest:
    """Returns the request, with all checks that need no run.

    budget: seconds, replaces the setting `budget_s`. against: a kernel that replaces the baseline.

    Raises:
        ArenaError: the problem, the kernel file or the setting cannot be run.
    """
    found = session.problem(problem)
    setting = choose_setting(found, choice, session.settings)
    name, path, text = _kernel(session, found, kernel, setting.device)
    rival = _kernel(session, found, against, setting.device) if against is not None else None
    return RunRequest(
        problem=found,
        setting=setting,
        player=str(kernel) if str(kernel) in (HOUSE, *VARIANTS) else "you",
        kernel_name=name,
        kernel_path=path,
        source=text.source,
        files=text.files,
        rounds=rounds,
        budget_s=session.settings.budget_s if budget is None else budget,
        versus=Rival(rival[0], rival[2].source, rival[2].files) if rival is not None else None,
    )


def _kernel(session: CliSession, problem: Problem, kernel: Path, device: str) -> tuple[str, str, Kernel]:
    """Returns name, path and files of the kernel given by an argument."""
    if named := named_kernel(str(kernel), problem, session.catalogue, device):
        return named[0], "", Kernel(named[1])
    if str(kernel) == STDIN:
        if sys.__stdin__ is None:
            raise UsageError("standard input is closed", "send the kernel to it, or name a file")
        return "stdin.py", "", Kernel(kernel_text(sys.stdin.buffer, "standard input"))
    # A file named "baseline" must not be taken for the baseline.
    found = read_kernel(kernel)
    name = f"./{BASELINE}" if found.name == BASELINE else found.name
    return name, str(kernel.absolute()), found.kernel
