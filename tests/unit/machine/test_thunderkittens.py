"""The checkout of ThunderKittens: found, bound into worlds, reported by the doctor."""

import os
import subprocess
from pathlib import Path

import pytest

from arena.cli.options import open_session
from arena.paths import module_environment
from sandbox.jail import profiles
from sandbox.machine import backends, thunderkittens

HEADERS = Path(__file__).parents[2] / "thunderkittens"


@pytest.fixture
def named(monkeypatch):
    """named(path): makes the environment name this checkout; an empty path names none."""

    def name(path: object) -> None:
        monkeypatch.setenv(thunderkittens.VARIABLE, str(path))

    name("")
    return name


def availability() -> backends.Availability:
    backend = backends.named("kittens")
    return backend.availability()


def test_missing_name_gets_advice_from_doctor(named):
    assert thunderkittens.checkout() is None
    assert availability().found == "ThunderKittens is not here: THUNDERKITTENS_ROOT names no checkout"
    assert "clone HazyResearch/ThunderKittens" in availability().advice
    assert thunderkittens.VARIABLE not in profiles.environment(Path("/tmp"), {})


@pytest.mark.parametrize(
    ("folders", "lacks"),
    [
        ((), "is not a folder"),
        (("prototype",), "has no include/kittens.cuh"),
        (("include",), "has no folder prototype"),
    ],
)
def test_what_a_folder_lacks_is_told(named, tmp_path, folders, lacks):
    root = tmp_path / "checkout"
    for folder in folders:
        (root / folder).mkdir(parents=True)
    if "include" in folders:
        (root / thunderkittens.HEADER).write_text("")
    named(root)
    assert thunderkittens.checkout() is None
    assert lacks in availability().found


def test_world_reads_headers_and_nothing_else_of_checkout(named, tmp_path):
    (tmp_path / "link").symlink_to(HEADERS)
    named(tmp_path / "link")
    assert profiles.environment(Path("/tmp"), {})[thunderkittens.VARIABLE] == str(HEADERS)
    assert {HEADERS / "include", HEADERS / "prototype"} <= set(profiles.program_paths())
    assert HEADERS not in profiles.program_paths()
    assert module_environment()[thunderkittens.VARIABLE] == str(tmp_path / "link")


def test_doctor_shows_commit_of_the_checkout_only(named, tmp_path):
    root = tmp_path / "checkout"
    (root / "prototype").mkdir(parents=True)
    (root / "include").mkdir()
    (root / thunderkittens.HEADER).write_text("")
    named(root)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "around"], check=True)
    assert availability().found == f"ThunderKittens, commit unknown, at {root}"
    (tmp_path / ".git").rename(root / ".git")
    commit = subprocess.run(
        [*git, "-C", str(root), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout
    assert availability().found == f"ThunderKittens, {commit[:12]}, at {root}"


def test_changed_headers_change_the_fingerprint(tmp_path):
    for name in ("include/kittens.cuh", "prototype/x.cuh"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("1")
    before = thunderkittens.fingerprint(tmp_path)
    (tmp_path / "include/kittens.cuh").write_text("22")
    thunderkittens.fingerprint.cache_clear()
    assert thunderkittens.fingerprint(tmp_path) != before


@pytest.mark.parametrize(("already", "found"), [("", str(HEADERS)), ("/elsewhere", "/elsewhere")])
def test_setting_names_checkout_unless_environment_does(named, monkeypatch, tmp_path, already, found):
    monkeypatch.setenv("PKB_ARENA_HOME", str(tmp_path))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "settings.toml").write_text(f'thunderkittens = "{HEADERS}"\n')
    named(already)
    open_session()
    assert os.environ[thunderkittens.VARIABLE] == found
