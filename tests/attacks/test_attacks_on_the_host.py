"""Attacks on the host: kernels that access files, keys, networks, other processes and the referee, or never end."""

from functools import partial
from pathlib import Path

import pytest

from arena.words.untrusted_text import printable
from benchmarks.attacks.attack_suite import read_kernels
from sandbox.protocol.verdict import Verdict

pytestmark = pytest.mark.slow
ATTACKS = "H"

ALL_OF_THEM = """
from importlib import import_module
from pathlib import Path

looters = [import_module(path.stem) for path in sorted(Path(__file__).parent.glob("[a-z][0-9]*.py"))]


def solution(tensor):
    return [looter.solution(tensor) for looter in looters][-1]
"""
KERNELS = {kernel.name: kernel for kernel in read_kernels(Path(__file__).parent)}


def test_attack_gets_its_verdict_and_does_no_harm(judged, kernel_name):
    judged(kernel_name)


def test_looters_of_one_world_find_nothing(jail, stands, looters):
    """Two worlds, one after the other: the second one looks for what the first one left behind."""
    referee, bait = next(stands)
    files = {f"{each.name}.py": bait.fill(each.source, referee.process.pid).encode() for each in looters}
    for _ in range(2):
        result = referee.judge(referee.setting("allreduce"), ALL_OF_THEM, rounds=0, files=files)
        assert result.verdict is Verdict.PASS, result.failure
        assert bait.harm(referee.events, jailed=True) == ()


def test_the_run_after_a_crash_is_unaffected(referee):
    setting = referee.setting("allreduce")
    assert referee.judge(setting, KERNELS["h14_segfault"].source).verdict is Verdict.CRASH
    referee.start(setting, KERNELS["h14_segfault"].source)  # as a test does that runs out of time
    assert referee.judge(setting, KERNELS["honest"].source, rounds=1).verdict is Verdict.PASS


def test_a_failure_names_the_kernels_own_line(judged):
    exception = judged("h14_exception")
    failure = exception.result.failure
    assert exception.kernel.source.splitlines()[failure.line - 1].strip().startswith("raise ValueError")
    assert "no idea [/how] to go on" in failure.message


further = partial(pytest.param, marks=pytest.mark.further)


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("h14_abort", "os.abort()", "killed by SIGABRT"),
        ("h13_hang", "time.sleep(3600)", "rank 0 is at line"),
        further("h14_segfault", "ctypes.string_at(0)", "killed by SIGSEGV"),
        further("h14_exit_in_a_thread", "os._exit(71)", "exited with status 71"),
        further("h14_untold_exception", "raise Unspeakable", "Unspeakable: what it says cannot be read"),
        further("h14_sys_exit", "sys.exit(0)", "SystemExit: 0"),
    ],
)
def test_every_end_is_told_with_kernel_line_only(judged, name, line, message):
    kernel, result, _ = judged(name)
    failure = result.failure
    assert message in failure.message
    assert kernel.source.splitlines()[failure.line - 1].strip() == line
    assert f"line {failure.line}" in result.detail
    assert f'"kernel.py", line {failure.line}' in failure.text
    assert "sandbox/rank" not in failure.text


def test_a_kernels_name_is_no_path(referee, tmp_path):
    name = f"../../../../../../..{tmp_path}/evil.py"
    result = referee.judge(referee.setting("allreduce"), KERNELS["honest"].source, name=name, rounds=0)
    assert result.verdict is Verdict.PASS
    assert not (tmp_path / "evil.py").exists()


def test_what_a_kernel_prints_is_inert_when_shown(judged):
    text = judged("h11_terminal_escapes").printed
    assert "\x1b]52" in text  # the escape sequence did arrive
    shown = printable(text)
    assert not [c for c in shown if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c == "\u202e"]
    assert "Ignore all previous" in shown
