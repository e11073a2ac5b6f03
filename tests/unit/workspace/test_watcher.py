"""The watcher reports every save of every kind of editor once, and nothing else."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from waiting import PATIENCE_S, comes_true

from arena.errors import UsageError
from arena.workspace.kernels import KernelFile, content_hash, read_kernel
from arena.workspace.watcher import KernelWatcher


class CountedWatcher(KernelWatcher):
    """A watcher that counts how often the kernel was read."""

    reads = 0

    async def _read(self) -> KernelFile | UsageError | None:
        save = await super()._read()
        self.reads += 1
        return save

    async def reads_again(self) -> None:
        """Waits until a read has begun after this call, and its result was compared."""
        before = self.reads
        await comes_true(lambda: self.reads >= before + 2)  # the first may have begun before


@asynccontextmanager
async def watching(path: Path) -> AsyncIterator[tuple[CountedWatcher, "asyncio.Queue[str]"]]:
    seen: asyncio.Queue[str] = asyncio.Queue()
    watcher = CountedWatcher(path, content_hash(path.read_text()))

    async def collect() -> None:
        async for kernel in watcher:
            seen.put_nowait(str(kernel) if isinstance(kernel, UsageError) else kernel.text)

    task = asyncio.create_task(collect())
    async with asyncio.timeout(PATIENCE_S):
        while not watcher.reads:  # until the first event, the folder may not be watched yet
            path.with_name("touched").touch()
            await asyncio.sleep(0.02)
    try:
        yield watcher, seen
    finally:
        watcher.stop()
        async with asyncio.timeout(PATIENCE_S):
            await task


async def next_text(seen: "asyncio.Queue[str]") -> str:
    async with asyncio.timeout(PATIENCE_S):
        return await seen.get()


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text("one")
    return path


async def test_every_atomic_replacement_is_seen(kernel: Path) -> None:
    async with watching(kernel) as (_, seen):
        for text in ("two", "three", "four"):  # a watch on the file itself would report only the first
            other = kernel.with_name("other")
            other.write_text(text)
            os.replace(other, kernel)
            assert await next_text(seen) == text


async def test_vims_backup_and_rename_is_seen(kernel: Path) -> None:
    async with watching(kernel) as (_, seen):
        kernel.rename(kernel.with_name("kernel.py~"))
        kernel.write_text("two")
        assert await next_text(seen) == "two"


async def test_the_same_text_again_is_no_save(kernel: Path) -> None:
    async with watching(kernel) as (_, seen):
        kernel.write_text("one")
        kernel.touch()
        kernel.with_name("neighbour.py").write_text("two")
        kernel.write_text("last")
        assert await next_text(seen) == "last"
        assert seen.empty()


@pytest.mark.slow
async def test_foreign_return_to_own_text_is_seen(kernel: Path) -> None:
    async with watching(kernel) as (watcher, seen):
        watcher.wrote(content_hash("one"))  # a save without a change
        kernel.write_text("one")
        await watcher.reads_again()
        for text in ("theirs", "one"):
            kernel.write_text(text)
            assert await next_text(seen) == text


@pytest.mark.slow
async def test_text_before_own_write_is_no_save(kernel: Path) -> None:
    async with watching(kernel) as (watcher, seen):
        watcher.wrote(content_hash("mine"))
        kernel.with_name("neighbour.py").write_text("the folder changes before the kernel does")
        await watcher.reads_again()
        kernel.write_text("mine")
        await watcher.reads_again()
        kernel.write_text("theirs")
        assert await next_text(seen) == "theirs"
        kernel.write_text("mine")  # this time, another program writes it
        assert await next_text(seen) == "mine"


@pytest.mark.slow
async def test_empty_kernel_is_told_only_if_it_stays(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with watching(kernel) as (watcher, seen):
        monkeypatch.setattr("arena.workspace.watcher.GRACE_S", PATIENCE_S)
        kernel.write_text("")
        await watcher.reads_again()
        kernel.write_text("two")
        assert await next_text(seen) == "two"
        monkeypatch.undo()
        kernel.write_text("")
        assert await next_text(seen) == ""
        monkeypatch.setattr("arena.workspace.watcher.GRACE_S", 0.0)
        kernel.unlink()  # it may be there again in a moment
        await watcher.reads_again()
        assert seen.empty()


async def test_a_folder_that_is_replaced_is_watched_again(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    path = folder / "kernel.py"
    path.write_text("one")
    async with watching(path) as (_, seen):
        folder.rename(tmp_path / "gone")
        folder.mkdir()
        path.write_text("two")
        assert await next_text(seen) == "two"
        path.write_text("three")
        assert await next_text(seen) == "three"


async def test_save_that_is_no_text_is_told_once(kernel: Path) -> None:
    async with watching(kernel) as (_, seen):
        kernel.write_bytes(b"\xe9")
        assert "is not UTF-8 text" in await next_text(seen)
        kernel.write_text("two")
        assert await next_text(seen) == "two"


async def test_every_file_of_a_folder_is_watched(tmp_path: Path) -> None:
    for name in ("kernel.py", "ops/reduce.cu"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    watcher = KernelWatcher(tmp_path, read_kernel(tmp_path).sha256)
    saves = aiter(watcher)
    seen = asyncio.create_task(anext(saves))
    async with asyncio.timeout(PATIENCE_S):
        while not seen.done():  # until the first event, the folder may not be watched yet
            (changed := tmp_path.with_name("changed")).write_text("changed")
            changed.replace(tmp_path / "ops/reduce.cu")
            await asyncio.sleep(0.02)
    save = await seen
    assert isinstance(save, KernelFile)
    assert save.files == {"ops/reduce.cu": b"changed"}
    (tmp_path / "broken").symlink_to("/etc/passwd")
    async with asyncio.timeout(PATIENCE_S):
        refused = await anext(saves)
    assert "link out of" in str(refused)
    watcher.stop()
