"""The run request that the arguments of `run` and `watch` stand for."""

from pathlib import Path

from arena.cli.session import CliSession
from arena.runs.run_request import RunRequest
from arena.setting_choice import Choice, choose_setting
from arena.workspace.baseline_variants import WORDS
from arena.workspace.house import HOUSE
from arena.workspace.kernels import read_kernel
from arena.workspace.named_kernels import BASELINE, named_kernel


def make_request(
    session: CliSession, problem: str, kernel: Path, choice: Choice, rounds: int | None, budget: float | None
) -> RunRequest:
    """The request, checked as far as is possible without running anything.

    budget: seconds, in place of the setting `budget_s`.

    Raises:
        ArenaError: the problem, the kernel file or the setting is not one that can be run.
    """
    found = session.problem(problem)
    setting = choose_setting(found, choice, session.settings)
    path = ""
    if named := named_kernel(str(kernel), found, session.catalogue, setting.device):
        name, source = named
    else:
        file = read_kernel(kernel)
        name, path, source = kernel.name, str(kernel.absolute()), file.text
        if name == BASELINE:
            name = f"./{BASELINE}"  # a file of that name is still a file
    return RunRequest(
        problem=found,
        setting=setting,
        player=str(kernel) if str(kernel) in (HOUSE, *WORDS) else "you",
        kernel_name=name,
        kernel_path=path,
        source=source,
        rounds=rounds,
        budget_s=session.settings.budget_s if budget is None else budget,
    )
