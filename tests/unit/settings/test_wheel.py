"""The wheel: it contains every tracked file, and judges a kernel in an environment of its own."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from forked_programs import answer_of
from waiting import PATIENCE_S

import arena

pytestmark = pytest.mark.slow
ROOT = Path(arena.__file__).resolve().parent.parent
PACKAGES = ("arena", "screens", "problems", "sandbox", "themes")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE_S)
    (built,) = folder.glob("*.whl")
    return built


def environment(folder: Path) -> Path:
    """Makes an empty virtual environment; returns the folder of its programs."""
    venv.create(folder, with_pip=False)
    return folder / "bin"


def install(bin_folder: Path, *arguments: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(bin_folder / "python"), "install", "--quiet"]
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*pip, *arguments], env=outside, check=False, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr


def run(bin_folder: Path, *arguments: str, python_path: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [bin_folder / "pkb-arena", *arguments],
        cwd="/",
        env=os.environ | {"PYTHONPATH": python_path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_every_tracked_file_of_packages_is_in_it(wheel: Path) -> None:
    listed = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=False)
    tracked = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    if not tracked:
        pytest.skip("not a git checkout")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert not tracked - inside
    assert any(name.endswith("data/share/man/man1/pkb-arena.1") for name in inside)


@pytest.mark.further
def test_environment_that_has_wheel_judges_kernel(wheel: Path, tmp_path: Path) -> None:
    bin_folder = environment(tmp_path / "env")
    install(bin_folder, "--no-deps", "--no-index", str(wheel))
    # Dependencies come from this test's environment, by path. Only the wheel has pkb-arena's own packages.
    needs = sysconfig.get_path("purelib")
    python = [bin_folder / "python", "-P", "-c", "import arena, screens; print(arena.__file__)"]
    where = subprocess.run(
        python, env=os.environ | {"PYTHONPATH": needs}, capture_output=True, text=True, check=True
    ).stdout
    assert Path(where).is_relative_to(tmp_path / "env")
    kernel = ("1", "baseline", "--device", "cpu", "--rounds", "0")
    assert answer_of(run(bin_folder, "run", *kernel, "--json", python_path=needs))["verdict"] == "PASS"
    assert (tmp_path / "env" / "share" / "man" / "man1" / "pkb-arena.1").is_file()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_pip_finds_everything_that_the_wheel_needs(wheel: Path, tmp_path: Path, small_budget: None) -> None:
    bin_folder = environment(tmp_path / "env")
    install(bin_folder, str(wheel))
    assert answer_of(run(bin_folder, "run", "1", "baseline", "--device", "cpu", "--json"))["verdict"] == "PASS"
