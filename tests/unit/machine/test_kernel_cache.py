"""Collecting the artefacts that a world has compiled: by kernel, regular files only, and at most so many bytes."""

import os
import platform
from pathlib import Path

import pytest

from sandbox.machine import kernel_cache

CODE = kernel_cache.ELF.ljust(18, b"\0") + kernel_cache.MACHINES[platform.machine()].to_bytes(2, "little")
CODE = CODE.ljust(4096, b"\0")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PKB_KERNEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """A world's $TMPDIR with one artefact; the world is this process."""
    built = tmp_path / "world" / f"pkb-kernels-{os.getuid()}"
    built.mkdir(parents=True)
    (built / "0123456789.so").write_bytes(CODE)
    return tmp_path / "world"


def test_an_artefact_is_kept_for_its_kernel(cache: Path, inside: Path) -> None:
    assert kernel_cache.harvest(os.getpid(), inside, "a" * 64) == 1
    assert kernel_cache.harvest(os.getpid(), inside, "b" * 64) == 1
    kept = sorted(str(path.relative_to(cache)) for path in cache.rglob("*.so"))
    assert kept == [f"{'a' * 64}/0123456789.so", f"{'b' * 64}/0123456789.so"]
    assert {path.stat().st_mode & 0o777 for path in cache.rglob("*.so")} == {0o755}  # worlds have other users


def test_what_is_there_is_not_replaced(cache: Path, inside: Path) -> None:
    kernel_cache.harvest(os.getpid(), inside, "a" * 64)
    (inside / f"pkb-kernels-{os.getuid()}" / "0123456789.so").write_bytes(CODE + b"other")
    assert kernel_cache.harvest(os.getpid(), inside, "a" * 64) == 0
    assert (cache / ("a" * 64) / "0123456789.so").read_bytes() == CODE


def test_folder_shared_by_kernels_is_shown_and_unwritable(cache: Path, inside: Path, tmp_path: Path) -> None:
    shared, shown = kernel_cache.shared(), tmp_path / "shown"
    shared.mkdir(parents=True)
    shown.mkdir()
    (shared / "nvshmem-01234567.cubin").write_bytes(CODE)
    kernel_cache.show(kernel_cache.SHARED, shown)
    assert (shown / kernel_cache.SHARED).stat().st_mode & 0o777 == 0o755
    assert (shown / kernel_cache.SHARED / "nvshmem-01234567.cubin").read_bytes() == CODE
    planted = inside / f"pkb-kernels-{os.getuid()}" / kernel_cache.SHARED
    planted.mkdir()
    (planted / "nvshmem-76543210.cubin").write_bytes(CODE)
    kernel_cache.harvest(os.getpid(), inside, "a" * 64)
    assert [path.name for path in shared.iterdir()] == ["nvshmem-01234567.cubin"]


def test_links_pipes_and_other_names_are_left(cache: Path, inside: Path) -> None:
    built = inside / f"pkb-kernels-{os.getuid()}"
    (built / "0123456789.so").unlink()
    (built / "linked-file.so").symlink_to("/etc/passwd")
    os.mkfifo(built / "pipe-pipe.so")
    (built / "notes.txt").write_text("x")
    assert kernel_cache.harvest(os.getpid(), inside, "a" * 64) == 0
    assert not list(cache.rglob("*.*"))


@pytest.mark.parametrize(("limit", "value"), [("KEPT_KERNELS", 2), ("MAX_TOTAL_BYTES", 2 * len(CODE))])
def test_the_newest_kernels_are_kept(cache: Path, inside: Path, monkeypatch, limit: str, value: int) -> None:
    monkeypatch.setattr(kernel_cache, limit, value)
    for age, name in enumerate("abc"):
        kernel_cache.harvest(os.getpid(), inside, name * 64)
        os.utime(cache / (name * 64), (1000 + age, 1000 + age))
    kernel_cache.harvest(os.getpid(), inside, "d" * 64)
    assert sorted(path.name[0] for path in cache.iterdir()) == ["c", "d"]


def test_what_is_no_code_is_left(cache: Path, inside: Path) -> None:
    built = inside / f"pkb-kernels-{os.getuid()}"
    (built / "0123456789.so").unlink()
    (built / "text-text.so").write_bytes(b"no code at all".ljust(4096))
    (built / "for-the-gpu.so").write_bytes(CODE[:18] + kernel_cache.CUDA.to_bytes(2, "little") + CODE[20:])
    (built / "for-the-cpu.cubin").write_bytes(CODE)
    (built / "cut-off.so").write_bytes(CODE[:40])
    assert kernel_cache.harvest(os.getpid(), inside, "a" * 64) == 0
    (built / "for-the-gpu.cubin").write_bytes(CODE[:18] + kernel_cache.CUDA.to_bytes(2, "little") + CODE[20:])
    assert kernel_cache.harvest(os.getpid(), inside, "a" * 64) == 1


def test_sparse_and_oversized_files_are_left_out(cache: Path, inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = inside / f"pkb-kernels-{os.getuid()}"
    with (built / "0000000000.so").open("wb") as file:
        file.write(CODE)
        file.truncate(32 << 20)
    monkeypatch.setattr(kernel_cache, "MAX_KERNEL_BYTES", 3 * len(CODE))
    for number in range(1, 6):
        (built / f"{number:010}.so").write_bytes(CODE)
    assert kernel_cache.harvest(os.getpid(), inside, "a" * 64) == 3
    assert kernel_cache.harvest(os.getpid(), inside, "a" * 64) == 0  # nor are they kept in another run
    kept = [path.name for path in (cache / ("a" * 64)).iterdir()]
    assert "0000000000.so" not in kept


def test_world_is_shown_its_own_kernels_code_alone(cache: Path, inside: Path, tmp_path: Path) -> None:
    for name in "ab":
        kernel_cache.harvest(os.getpid(), inside, name * 64)
    shown = tmp_path / "shown"
    shown.mkdir()
    kernel_cache.show("a" * 64, shown)
    kernel_cache.show("c" * 64, shown)  # this kernel has no artefacts
    kernel_cache.show("a" * 64, shown)
    assert [str(path.relative_to(shown)) for path in shown.rglob("*.so")] == [f"{'a' * 64}/0123456789.so"]


def test_one_folder_is_read_and_that_bounded(cache: Path, inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = inside / f"pkb-kernels-{os.getuid()}"
    own.rename(inside / "pkb-kernels-other")
    own.symlink_to(inside / "pkb-kernels-other")
    assert kernel_cache.harvest(os.getpid(), inside, "a" * 64) == 0
    own.unlink()
    own.mkdir()
    for number in range(9):
        (own / f"{number:010}.so").write_bytes(CODE)
    monkeypatch.setattr(kernel_cache, "MAX_ENTRIES", 4)
    assert kernel_cache.harvest(os.getpid(), inside, "a" * 64) == 4
