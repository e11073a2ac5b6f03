"""Checks a run's setting before any world is started, and fills in the text of the problem's baseline."""

from pathlib import Path

import msgspec

from problems.specification import ProblemError, SizeError, WorldRefused, load_problem
from sandbox.machine.backends import refusal
from sandbox.machine.devices import KINDS
from sandbox.protocol.events import Failure, Run, Setting
from sandbox.protocol.kernel_files import Kernel, fault_in
from sandbox.referee.awaiting import SettingRefused
from sandbox.referee.labels import backends_of


def check_setting(setting: Setting) -> None:
    """Checks what needs no world: the problem, the world size, the dtype and the device.

    Raises:
        SettingRefused: they do not fit together.
    """
    try:
        problem = load_problem(Path(setting.problem_dir))
        problem.check_world(setting.world)
        if setting.dtype not in problem.dtypes:
            raise SizeError(f"{problem.slug} runs in {', '.join(problem.dtypes)}, not in {setting.dtype}")
        if setting.device not in KINDS:
            raise SizeError(f"no device {setting.device!r}: choose {' or '.join(KINDS)}")
    except (ProblemError, SizeError, WorldRefused) as error:
        raise SettingRefused(str(error)) from None


def check_files(run: Run) -> None:
    """Checks the files of the kernels, which the referee will write.

    Raises:
        SettingRefused: a name leads out of the kernel's folder, or they are too many or too large.
    """
    rival = [run.versus.kernel] if run.versus is not None else []
    if fault := next(filter(None, map(fault_in, (run.kernel, *rival))), ""):
        raise SettingRefused(fault)


def backend_failure(run: Run) -> Failure | None:
    """The failure of a kernel that imports a backend which cannot be used with this device and world size; None if it can be.

    Raises:
        SettingRefused: the rival is such a kernel.
    """
    advice = "Choose two or more GPUs with --device cuda --world N, or another kernel."
    if run.versus is not None and (reason := _unusable(run.versus.kernel, run.setting)):
        raise SettingRefused(reason, advice)
    reason = _unusable(run.kernel, run.setting)
    return Failure(phase="load", message=reason, advice=advice) if reason else None


def _unusable(kernel: Kernel, setting: Setting) -> str:
    reasons = (refusal(backend, setting.device, setting.world) for backend in backends_of(kernel))
    return next(filter(None, reasons), "")


def with_sources(run: Run) -> Run:
    """The run with the baseline's text in place of the word `baseline`."""
    if run.is_baseline:
        run = msgspec.structs.replace(run, source=_baseline_source(run.setting))
    rival = run.versus
    if rival is not None and rival.is_baseline:
        rival = msgspec.structs.replace(rival, source=_baseline_source(run.setting))
        run = msgspec.structs.replace(run, versus=rival)
    return run


def _baseline_source(setting: Setting) -> str:
    try:
        return (Path(setting.problem_dir) / "baseline.py").read_text()
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise SettingRefused(f"the problem's baseline.py cannot be read: {error}") from None
