"""Access that the system refuses to a user: one clear error and the documented exit code, never a traceback."""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stored_runs import ran
from waiting import PATIENCE_S

from arena.paths import make_folder, paths_in
from arena.records.index import Store

pytestmark = pytest.mark.slow

SWEEPS = str(paths_in(Path()).sweeps)
CAPBSET_DROP, DAC_OVERRIDE, DAC_READ_SEARCH = 24, 1, 2
KERNEL = "def solution(tensor):\n    return tensor\n"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def _without_privileges() -> None:
    """Removes root's right to ignore file modes; changes nothing for other users."""
    for capability in (DAC_OVERRIDE, DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(CAPBSET_DROP, capability, 0, 0, 0)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home with settings, a sweep and a kernel. All its folders can be deleted after the test."""
    home = tmp_path / "home"
    for folder in ("config", "data/runs", SWEEPS, "data/duels", "data/workspace", "state"):
        (home / folder).mkdir(parents=True)
    (home / "config" / "settings.toml").write_text('theme = "dark"\n')
    (home / SWEEPS / "c1.jsonl").write_text("{}\n")
    (home / "kernels").mkdir()
    (home / "kernels" / "1.py").write_text(KERNEL)
    yield home
    for folder, _, _ in os.walk(home):
        Path(folder).chmod(0o700)


@pytest.fixture
def run(home: Path) -> Run:
    """run(words): the command line, as an unprivileged user."""

    def go(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "screens.main", *words],
            env={**os.environ, "PKB_ARENA_HOME": str(home)},
            preexec_fn=_without_privileges,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    return go


@pytest.mark.parametrize(
    ("refused", "mode", "words", "said", "code"),
    [
        ("data/runs", 0o500, "run 1 KERNELS/1.py", "cannot write to HOME/data/runs", 3),
        ("data/runs", 0o000, "replay last", "cannot read HOME/data/runs: Permission denied", 3),
        ("data/runs", 0o000, "replay some", "HOME/data/runs", 3),
        ("state", 0o500, "calibrate --device cpu", "cannot write to HOME/state/calibrations", 3),
        ("state", 0o500, "transfers --device cpu", "cannot write to HOME/state/calibrations", 3),
        ("data/workspace", 0o500, "new 1", "cannot write to HOME/data/workspace", 3),
        (SWEEPS, 0o500, "sweep --players baseline --problems 1 --name c2", f"cannot write to HOME/{SWEEPS}", 3),
        (SWEEPS, 0o000, "sweep --resume", f"cannot read HOME/{SWEEPS}: Permission denied", 3),
        (SWEEPS, 0o000, "board", f"cannot read HOME/{SWEEPS}: Permission denied", 3),
        (f"{SWEEPS}/c1.jsonl", 0o000, "sweep --resume --name c1", f"cannot read HOME/{SWEEPS}/c1.jsonl", 3),
        ("data/duels", 0o000, "duels", "cannot read HOME/data/duels: Permission denied", 3),
        ("config/settings.toml", 0o000, "list", "HOME/config/settings.toml cannot be read: Permission denied", 3),
        ("config", 0o000, "list", "HOME/config/settings.toml cannot be read: Permission denied", 3),
        ("kernels/1.py", 0o000, "run 1 KERNELS/1.py", "KERNELS/1.py", 2),
        ("kernels", 0o000, "run 1 KERNELS/1.py", "KERNELS/1.py cannot be read: Permission denied", 2),
        ("kernels", 0o000, "sweep --players file:KERNELS --problems 1 --name c2", "KERNELS cannot be read", 2),
        ("kernels", 0o000, "import KERNELS/bundle", "KERNELS/bundle: Permission denied", 3),
        ("kernels", 0o500, "duel 1 --left baseline --right baseline --svg KERNELS/card.svg", "cannot write to KERNELS", 3),
        ("kernels", 0o500, "profile 1 KERNELS/1.py --trace KERNELS/t.json", "cannot write to KERNELS", 3),
    ],
)  # fmt: skip
def test_refusal_says_what_where_and_what_to_do(
    run: Run, home: Path, refused: str, mode: int, words: str, said: str, code: int
) -> None:
    def filled(text: str) -> str:
        return text.replace("KERNELS", str(home / "kernels")).replace("HOME", str(home))

    (home / refused).chmod(mode)
    done = run(*filled(words).split())
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if line]
    assert lines[0].startswith("pkb-arena: ")
    assert filled(said) in lines[0]
    assert len(lines) == 2
    assert "permissions" in lines[1] or "readable" in lines[1] or "writ" in lines[1]


def test_doctor_looks_at_folders_that_nobody_may_enter(run: Run, home: Path) -> None:
    home.chmod(0o000)
    done = run("doctor")
    assert done.returncode == 3, done.stderr
    assert done.stderr == ""
    for name in ("settings", "data", "state"):
        assert f"✗ {name} folder" in done.stdout
    assert "✗ settings file" in done.stdout


def test_partial_index_is_not_taken_for_whole_one(run: Run, home: Path) -> None:
    ran(paths_in(home), "a", "x = 1", 1.5)
    (home / "data" / "results.sqlite").write_bytes(b"damaged")
    (home / "data" / "runs").chmod(0o000)
    done = run("board")
    assert done.returncode == 3
    assert "data/runs: Permission denied" in done.stderr
    (home / "data" / "runs").chmod(0o700)
    assert json.loads(run("list", "--json").stdout)[0]["runs"] == 1


@pytest.mark.parametrize("index", ["whole", "missing", "damaged"])
def test_a_home_that_is_only_readable_has_results(run: Run, home: Path, index: str) -> None:
    paths = paths_in(home)
    (home / SWEEPS / "c1.jsonl").unlink()
    ran(paths, "a", "x = 1", 1.5)
    if index != "missing":
        Store(paths.database, paths.runs).close()
    if index == "damaged":
        paths.database.write_bytes(b"this is no database" * 100)
    for folder, _, _ in os.walk(home):
        Path(folder).chmod(0o500)
    (listed, *_) = json.loads(run("list", "--json").stdout)
    assert (listed["id"], listed["runs"]) == (1, 1)
    board = run("board")
    assert (board.returncode, board.stderr) == (0, "")
    assert "you" in board.stdout


def test_new_folders_are_for_their_user_alone(tmp_path: Path) -> None:
    made = make_folder(tmp_path / "data" / "workspace" / "13")
    assert [folder.stat().st_mode & 0o777 for folder in (made, *made.parents[:2])] == [0o700] * 3
    assert make_folder(made) == made
