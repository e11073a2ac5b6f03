"""The player of a named kernel: the baseline, a baseline variant, or the house kernel."""

from arena.players.player import KernelAccess, Player, PlayerName, Submission, Task
from arena.workspace.named_kernels import named_kernel
from problems.catalogue import Catalogue


class FixedPlayer(Player):
    """Submits the kernel that the player's name stands for."""

    fixed = True

    def __init__(self, name: PlayerName, catalogue: Catalogue) -> None:
        self.name = name
        self._catalogue = catalogue

    def check(self, task: Task) -> None:
        self._kernel(task)

    async def play(self, task: Task, access: KernelAccess) -> Submission:
        file_name, source = self._kernel(task)
        return Submission(source, file_name)

    def _kernel(self, task: Task) -> tuple[str, str]:
        found = named_kernel(self.name.name, task.problem, self._catalogue, task.setting.device)
        assert found is not None
        return found
