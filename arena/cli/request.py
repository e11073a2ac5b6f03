"""From the arguments of `run` and `watch` to what the engine runs."""

from pathlib import Path

from arena.cli.session import Session
from arena.house import HOUSE
from arena.named_kernels import named_kernel
from arena.run_request import RunRequest
from arena.setting_choice import Choice, choose_setting
from arena.store import BASELINE
from arena.workspace import read_kernel
from arena.yardsticks import WORDS


def make_request(
    session: Session, problem: str, kernel: Path, choice: Choice, rounds: int | None
) -> RunRequest:
    """What to run, checked as far as can be without running anything.

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
        budget_s=session.settings.budget_s,
    )
