"""Every rule of the judge: a kernel that it rejects, and an honest twin that it accepts."""

import re
from pathlib import Path

import pytest

from sandbox.verdict import Verdict

KERNELS = sorted((Path(__file__).parent / "kernels").glob("*.py"))


def header(path: Path, name: str) -> str:
    """A field of the comment at the top of a kernel file."""
    found = re.search(rf"^# {name}: (.*)$", path.read_text(), re.MULTILINE)
    assert found, f"{path.name} has no `# {name}:`"
    return found.group(1)


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_kernel_gets_its_verdict(referee, path):
    result = referee.judge(referee.setting(header(path, "problem")), path.read_text())
    assert result.verdict == Verdict(header(path, "expect")), result.detail
    if result.verdict is not Verdict.PASS:
        assert result.failure is not None
        assert result.failure.advice


def test_the_run_after_a_crash_is_unaffected(referee):
    honest = (Path(__file__).parent / "kernels" / "honest.py").read_text()
    crash = (Path(__file__).parent / "kernels" / "segfault.py").read_text()
    setting = referee.setting("allreduce")
    assert referee.judge(setting, crash).verdict is Verdict.CRASH
    assert referee.judge(setting, honest).verdict is Verdict.PASS


def test_a_wrong_element_is_named(referee):
    source = (Path(__file__).parent / "kernels" / "one_wrong_element.py").read_text()
    failure = referee.judge(referee.setting("allreduce"), source).failure
    assert failure.rank == 1
    assert failure.index == [127, 255]
    assert failure.output == "out"
    assert abs(float(failure.got) - float(failure.expected) - 1) < 0.1


def test_a_failure_names_the_kernels_own_line(referee):
    source = (Path(__file__).parent / "kernels" / "exception.py").read_text()
    failure = referee.judge(referee.setting("allreduce"), source).failure
    assert source.splitlines()[failure.line - 1].strip().startswith("raise ValueError")
    assert "no idea [/how] to go on" in failure.message
