"""Prepares a rank for a profile: its process group, the problem and the kernel."""

import os
import traceback
from pathlib import Path
from typing import Any

import torch

from problems.specification import load_problem
from sandbox.protocol.kernel_files import MAIN
from sandbox.protocol.profile import ProfilePlan
from sandbox.rank.kernel.module import KernelRefused, load_solution
from sandbox.rank.kernel.traceback import describe, kernel_line
from sandbox.rank.problem_code import ProblemCode
from sandbox.rank.profiling.calls import ProfiledCalls


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
    rank_setting = code.setting(setting.sizes, setting.preset, getattr(torch, setting.dtype), device.torch_device)
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
