"""Collecting what a world has compiled: by kernel, regular files only, and not without end."""

import os
from pathlib import Path

import pytest

from sandbox.jail import kernel_cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PKB_KERNEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """A world's $TMPDIR with one artefact; the world is this process."""
    built = tmp_path / "world" / "pkb-kernels-7"
    built.mkdir(parents=True)
    (built / "0123456789.so").write_bytes(b"code")
    return tmp_path / "world"


def test_an_artefact_is_kept_for_its_kernel(cache: Path, inside: Path) -> None:
    assert kernel_cache.harvest(os.getpid(), inside, "a" * 64) == 1
    assert kernel_cache.harvest(os.getpid(), inside, "b" * 64) == 1
    kept = sorted(str(path.relative_to(cache)) for path in cache.rglob("*.so"))
    assert kept == [f"{'a' * 64}/0123456789.so", f"{'b' * 64}/0123456789.so"]


def test_what_is_there_is_not_replaced(cache: Path, inside: Path) -> None:
    kernel_cache.harvest(os.getpid(), inside, "a" * 64)
    (inside / "pkb-kernels-7" / "0123456789.so").write_bytes(b"other")
    assert kernel_cache.harvest(os.getpid(), inside, "a" * 64) == 0
    assert (cache / ("a" * 64) / "0123456789.so").read_bytes() == b"code"


def test_links_pipes_and_other_names_are_left(cache: Path, inside: Path) -> None:
    built = inside / "pkb-kernels-7"
    (built / "0123456789.so").unlink()
    (built / "linked-file.so").symlink_to("/etc/passwd")
    os.mkfifo(built / "pipe-pipe.so")
    (built / "notes.txt").write_text("x")
    (inside / "pkb-kernels-linked").symlink_to("/usr/lib")
    assert kernel_cache.harvest(os.getpid(), inside, "a" * 64) == 0
    assert not list(cache.rglob("*.*"))


def test_only_so_many_kernels_are_kept(cache: Path, inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "KEPT_KERNELS", 2)
    for age, name in enumerate("abc"):
        kernel_cache.harvest(os.getpid(), inside, name * 64)
        os.utime(cache / (name * 64), (1000 + age, 1000 + age))
    kernel_cache.harvest(os.getpid(), inside, "d" * 64)
    assert sorted(path.name[0] for path in cache.iterdir()) == ["c", "d"]
