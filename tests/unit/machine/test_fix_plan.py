"""The commands that the doctor prints for what is missing, and the CuPy that `make arena` chooses."""

import json
import shlex
import subprocess
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import pytest
from forked_programs import CommandLine

from arena.machine.finding import (
    MachineFinding,
    as_script,
    extra_requirements,
    fix_plan,
    isolation_advice,
    isolation_fix,
    system_install,
)
from benchmarks.cupy_choice import choose_cupy
from sandbox.machine.backends import python_install


def test_plan_lists_essentials_first_and_commands_once() -> None:
    findings = [
        MachineFinding("python", "ok", "3.11"),
        MachineFinding("NVLink", "limited", "none", "expect less"),
        MachineFinding("gcc", "limited", "not found", "install it", ("apt-get install -y gcc",)),
        MachineFinding("gcc again", "limited", "not found", "install it", ("apt-get install -y gcc",)),
        MachineFinding("torch", "missing", "not installed", "install it", ("pip install torch",)),
    ]
    assert [(finding.name, finding.fix) for finding in fix_plan(findings)] == [
        ("torch", ("pip install torch",)),
        ("gcc", ("apt-get install -y gcc",)),
        ("NVLink", ()),
    ]


def test_script_runs_its_commands_alone(tmp_path: Path) -> None:
    hostile = f"a name\ntouch {tmp_path}/harm"
    findings = [
        MachineFinding("one", "limited", hostile, hostile),
        MachineFinding("two", "limited", hostile, "", (f"touch {tmp_path}/done",)),
    ]
    script = "\n".join(as_script(fix_plan(findings)))
    subprocess.run(["sh", "-e"], input=script, text=True, check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["done"]


@pytest.mark.parametrize(
    ("manager", "words"),
    [("apt-get", ["gcc", "g++"]), ("dnf", ["gcc", "gcc-c++"]), ("pacman", ["gcc"]), ("zypper", ["gcc", "gcc-c++"])],
)
def test_packages_by_the_names_of_each_system(manager: str, words: Sequence[str]) -> None:
    (line,) = system_install("gcc", "g++", which=lambda name: name if name == manager else None)
    assert shlex.split(line)[-len(words) :] == words
    assert manager in line


def test_python_packages_go_where_the_program_lives() -> None:
    pipx = "/home/me/.local/share/pipx/venvs/pkb-arena/bin/python"
    uv = "/home/me/.local/share/uv/tools/pkb-arena/bin/python"
    torch = f"torch=={metadata.version('torch')}"  # else the package may bring another build of torch
    assert python_install("triton", executable=pipx) == f"pipx inject pkb-arena triton {torch}"
    assert python_install("torchvision", executable=uv) == f"uv pip install --python {uv} torchvision {torch}"
    assert python_install("torch>=2.9,<3", executable="/a b/python", force=True) == (
        "'/a b/python' -m pip install --force-reinstall 'torch>=2.9,<3'"
    )


@pytest.fixture
def jailable(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """jailable(root): this user is root or not, and bubblewrap and libseccomp are installed."""
    monkeypatch.setattr("arena.machine.finding.shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("arena.machine.finding.ctypes.util.find_library", lambda name: "libseccomp.so.2")
    return lambda root: monkeypatch.setattr("arena.machine.finding.os.geteuid", lambda: 0 if root else 1000)


def test_a_jail_that_a_switch_forbids(tmp_path: Path, jailable: Callable[[bool], None]) -> None:
    jailable(False)
    (tmp_path / "kernel").mkdir()
    switch = tmp_path / "kernel" / "apparmor_restrict_unprivileged_userns"
    switch.write_text("1\n")
    (line,) = isolation_fix("none", tmp_path)
    assert line == "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    assert isolation_advice("none", tmp_path, container=False).startswith("AppArmor refuses")
    assert isolation_advice("none", tmp_path, container=True).endswith(f"and on its host: {line}")
    switch.write_text("0\n")
    assert isolation_fix("none", tmp_path) == ()
    assert isolation_fix("root", tmp_path) == ()


@pytest.mark.parametrize(
    ("profile", "root", "container", "words"),
    [
        ("none", True, True, "start the container with --cap-add SYS_ADMIN --security-opt seccomp=unconfined"),
        ("none", False, True, "start the container with --security-opt seccomp=unconfined"),
        ("none", True, False, "although you are root: start pkb-arena as a normal user"),
        ("none", False, False, "allow this user to make user namespaces"),
        ("root", True, False, "start pkb-arena as a normal user"),
        ("root", True, True, "start the container with --user"),
        ("nested", True, True, "systempaths=unconfined"),
    ],
)
def test_jail_advice_fits_the_user_and_the_machine(
    profile: str, root: bool, container: bool, words: str, tmp_path: Path, jailable: Callable[[bool], None]
) -> None:
    jailable(root)
    advice = isolation_advice(profile, tmp_path, container)
    assert words in advice
    assert "install" not in advice  # bubblewrap is there


@pytest.mark.parametrize(
    ("torch", "driver", "installed", "extra", "words"),
    [
        ((13, 0), (13, 0), [], "cuda13", "torch is for CUDA 13.0"),
        ((12, 8), (13, 0), [], "cuda12", "torch is for CUDA 12.8"),
        (None, (12, 4), [], "cuda12", "the driver goes up to CUDA 12.4"),
        ((13, 0), (12, 8), [], "", "the driver goes up to 12.8"),
        ((13, 0), (13, 1), ["cupy-cuda13x"], "", "installed already"),
        ((13, 0), (13, 1), ["cupy"], "", "installed already"),
        ((13, 0), (13, 1), ["cupy-cuda12x"], "", "uninstall it"),
        ((11, 8), (13, 0), [], "", "12 and 13 alone"),
        (None, None, [], "", "no driver answers"),
    ],
)
def test_the_cupy_that_fits(
    torch: tuple[int, int] | None, driver: tuple[int, int] | None, installed: list[str], extra: str, words: str
) -> None:
    choice = choose_cupy(torch, driver, installed)
    assert choice.extra == extra
    assert words in choice.why


def test_an_extra_names_the_packages_of_pyproject() -> None:
    names = [requirement.partition(">")[0].partition("<")[0] for requirement in extra_requirements("cuda13")]
    assert names == ["cupy-cuda13x", "nvidia-cuda-nvrtc", "nvidia-ml-py"]
    assert extra_requirements("nothing") == []


def test_the_doctor_prints_a_plan_and_does_nothing(pkb_arena: CommandLine, home: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError")
    lacking = {"PATH": "/nowhere", "PYTHONPATH": str(tmp_path)}
    done = pkb_arena("doctor", "--fix-plan", NO_COLOR="1", **lacking)
    assert "# gcc: not found" in done.stdout
    for line in done.stdout.splitlines():
        assert not line or line.startswith("#") or shlex.split(line)
    fixes = json.loads(pkb_arena("doctor", "--fix-plan", "--json", **lacking).stdout)["fixes"]
    assert {"gcc", "terminal", "torch"} <= {fix["name"] for fix in fixes}
    assert not home.exists()
