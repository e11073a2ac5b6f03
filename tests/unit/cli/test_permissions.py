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


def made_home(home: Path) -> Path:
    """Returns a new home with settings, a sweep and a kernel."""
    for folder in ("config", "data/runs", SWEEPS, "data/duels", "data/workspace", "state"):
        (home / folder).mkdir(parents=True)
    (home / "config" / "settings.toml").write_text('theme = "dark"\n')
    (home / SWEEPS / "c1.jsonl").write_text("{}\n")
    (home / "kernels").mkdir()
    (home / "kernels" / "1.py").write_text(KERNEL)
    return home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home whose folders can be deleted after the test."""
    home = made_home(tmp_path / "home")
    yield home
    for folder, _, _ in os.walk(home):
        Path(folder).chmod(0o700)


def unprivileged(*command: str, home: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PKB_ARENA_HOME": str(home)},
        preexec_fn=_without_privileges,
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


@pytest.fixture
def run(home: Path) -> Run:
    """run(words): the command line, as an unprivileged user."""
    return lambda *words: unprivileged("-m", "screens.main", *words, home=home)


REFUSALS = [
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
]  # fmt: skip
"""(what may not be used, its mode, command, what is said, exit code)"""
SEVERAL = """
import contextlib, io, json, os, sys
from screens.main import main
found = []
for home, path, mode, words in json.loads(sys.argv[1]):
    os.environ["PKB_ARENA_HOME"] = home
    err, status = io.StringIO(), 0
    os.chmod(path, mode)
    with contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as end:
            status = end.code
    os.chmod(path, 0o700)
    found.append((status, err.getvalue()))
print(json.dumps(found))
"""


def test_refusal_says_what_where_and_what_to_do(tmp_path: Path) -> None:
    homes = [made_home(tmp_path / str(number)) for number in range(len(REFUSALS))]

    def filled(text: str, home: Path) -> str:
        return text.replace("KERNELS", str(home / "kernels")).replace("HOME", str(home))

    given = [
        (str(home), str(home / refused), mode, filled(words, home).split())
        for home, (refused, mode, words, *_) in zip(homes, REFUSALS, strict=True)
    ]
    done = unprivileged("-c", SEVERAL, json.dumps(given), home=tmp_path)
    for home, row, (status, err) in zip(homes, REFUSALS, json.loads(done.stdout), strict=True):
        *_, said, code = row
        assert status == code, (row, err)
        first, second = filter(None, err.splitlines())
        assert first.startswith("pkb-arena: ")
        assert filled(said, home) in first
        assert "permissions" in second or "readable" in second or "writ" in second


def test_doctor_looks_at_folders_that_nobody_may_enter(run: Run, home: Path) -> None:
    home.chmod(0o000)
    done = run("doctor")
    home.chmod(0o700)  # a normal user's pytest removes it later
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
