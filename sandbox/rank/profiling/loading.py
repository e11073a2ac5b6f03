"""Prepares a rank for a profile: its process group, the problem and the kernel, and calls with inputs that are ready."""

import os
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from problems.setting import RankSetting
from problems.specification import load_problem
from sandbox.protocol.kernel_files import MAIN
from sandbox.protocol.profile import ProfilePlan
from sandbox.rank.kernel_module import KernelRefused, describe, kernel_line, load_solution
from sandbox.rank.problem_code import Leaves, ProblemCode

CACHED_BYTES, MOST_SETS = 256 << 20, 8
"""Bytes of inputs that exceed a GPU's cache, and most sets of inputs."""


class ProfiledCalls:
    """Makes calls one after the other, with arguments that are assembled before."""

    def __init__(
        self, code: ProblemCode, setting: RankSetting, solution: Callable[..., Any], seed: int, *, rotate: bool
    ) -> None:
        """rotate: alternate between several sets of inputs, so that no cache holds them."""
        self._code = code
        self._setting = setting
        self._solution = solution
        first = code.draw(setting, seed)
        size = sum(tensor.numel() * tensor.element_size() for tensor in first.values())
        count = min(MOST_SETS, -(-CACHED_BYTES // max(size, 1))) if rotate else 1
        self._sets: list[Leaves] = [first, *(code.draw(setting, seed + more) for more in range(1, count))]
        self._kept = [None if code.problem.mutates else self._arguments(drawn) for drawn in self._sets]
        self._turn = 0

    def make(self, count: int) -> None:
        """Makes `count` calls. Arguments that solution may write to are copied before each call."""
        for _ in range(count):
            self.prepared()()

    def prepared(self) -> Callable[[], Any]:
        """The next call, with its arguments."""
        self._turn = (self._turn + 1) % len(self._sets)
        return partial(self._solution, *(self._kept[self._turn] or self._arguments(self._sets[self._turn])))

    def _arguments(self, drawn: Leaves) -> tuple[Any, ...]:
        return self._code.arguments(self._code.with_copies(drawn), self._setting)


def enter_world(plan: ProfilePlan, rank: int, device: Any, rendezvous: str, *, lazy: bool = False) -> None:
    """Sets the rank's cores, environment and folder, and joins the process group.

    rendezvous: the folder of its store; lazy: as `Device.join`.
    """
    os.sched_setaffinity(0, plan.cores[rank])
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(plan.setting.world)}
    folder = Path(plan.folder) / f"rank{rank}"
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    device.join(rank, plan.setting.world, rendezvous, lazy=lazy)


def loaded_calls(plan: ProfilePlan, rank: int, device: Any, *, rotate: bool) -> ProfiledCalls:
    """Loads the kernel, and draws the inputs of its calls. rotate: as `ProfiledCalls`."""
    setting = plan.setting
    code = ProblemCode(load_problem(Path(setting.problem_dir)))
    rank_setting = code.setting(setting.sizes, setting.preset, setting.dtype, device.torch_device)
    solution = code.baseline
    if plan.source:
        solution = load_solution(plan.source, _kernel_path(plan, rank), code.problem.parameters, plan.kernel_folder)
    return ProfiledCalls(code, rank_setting, solution, plan.seed, rotate=rotate)


def failure(error: BaseException, plan: ProfilePlan, rank: int) -> str:
    """The text of an exception: the kernel's own lines if it passed through the kernel, else the full traceback."""
    path = _kernel_path(plan, rank)
    if isinstance(error, KernelRefused):
        return str(error)
    if kernel_line(error, path):
        head, _, text = describe(error, path, plan.kernel_folder).partition("\n\n")  # a traceback ends with its head
        return text or head
    return traceback.format_exc()


def _kernel_path(plan: ProfilePlan, rank: int) -> str:
    if plan.kernel_folder:
        return f"{plan.kernel_folder}/{MAIN}"
    return str(Path(plan.folder) / f"rank{rank}" / plan.kernel_name)
