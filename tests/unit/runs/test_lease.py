"""Leases: one match at a time on a device, among the arenas of all users."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from arena.paths import Paths
from arena.runs.engine import Engine
from arena.runs.run_request import RunRequest
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from sandbox.protocol.events import AnyEvent, Cancelled, Finished, Setting, Waiting
from sandbox.protocol.verdict import Verdict
from sandbox.referee.lease import Lease, devices_of


def setting(world: int, device: str) -> Setting:
    return Setting(problem_dir="", preset="tiny", sizes={}, dtype="float32", world=world, device=device)


def test_a_device_is_leased_once(tmp_path: Path) -> None:
    first, second = Lease(["gpu-0", "gpu-1"], tmp_path), Lease(["gpu-1", "gpu-2"], tmp_path)
    assert first.take()
    assert not second.take()
    first.close()
    assert second.take()
    second.close()


def test_what_is_not_wholly_free_is_not_held_in_part(tmp_path: Path) -> None:
    last, both, first = (Lease(names, tmp_path) for names in (["gpu-1"], ["gpu-0", "gpu-1"], ["gpu-0"]))
    assert last.take()
    assert not both.take()
    assert first.take()


def test_a_lease_ends_with_its_process(tmp_path: Path) -> None:
    holds = "import sys; from pathlib import Path; from sandbox.referee.lease import Lease\n"
    holds += "lease = Lease(['cores'], Path(sys.argv[1])); print(lease.take(), flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", holds, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"True\n"
    mine = Lease(["cores"], tmp_path)
    assert not mine.take()
    process.kill()
    process.communicate()
    assert mine.take()


def test_who_has_a_device_is_known_until_it_is_given_back(tmp_path: Path) -> None:
    mine, other = Lease(["gpu-0", "gpu-1"], tmp_path), Lease(["gpu-1"], tmp_path)
    assert mine.take("gemm_allreduce")
    assert not other.take("allreduce")
    holder = other.holder()
    assert holder is not None
    assert (holder.pid, holder.problem) == (os.getpid(), "gemm_allreduce")
    assert f"process {os.getpid()}, since " in holder.words
    mine.close()
    assert other.holder() is None


def test_a_note_of_a_dead_process_or_of_anything_else_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "cores.1").write_text('{"pid": 4194999, "user": "ada", "problem": "gone", "since": 1.0}')
    (tmp_path / "cores.2").write_text("no note")
    os.mkfifo(tmp_path / "cores.3")
    os.symlink(tmp_path / "cores.1", tmp_path / "cores.4")
    assert Lease(["cores"], tmp_path).holder() is None


def test_a_link_in_the_shared_folder_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    os.symlink(target, tmp_path / "cores")
    with pytest.raises(OSError, match="cores"):
        Lease(["cores"], tmp_path)


def test_gpus_are_named_as_the_driver_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert devices_of(setting(2, "cuda")) == ["gpu-0", "gpu-1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert devices_of(setting(2, "cuda")) == ["gpu-3", "gpu-1"]
    assert devices_of(setting(2, "cpu")) == ["cores"]


@pytest.mark.slow
async def test_a_run_waits_until_another_arena_has_measured(paths: Paths, shared_referee: Any) -> None:
    problem = load_catalogue().find("1")
    here = choose_setting(problem, Choice(preset="tiny", world=2, device="cpu"), Settings())
    asked = RunRequest(problem=problem, setting=here, kernel_name="baseline", source="", rounds=2)
    waiting = asyncio.Event()

    def listen(event: AnyEvent) -> None:
        if isinstance(event, Waiting) and event.holder is not None and event.holder.problem == "theirs":
            waiting.set()

    other = Lease(["cores"])
    while not other.take("theirs"):
        await asyncio.sleep(0.05)
    async with Engine(paths, command=shared_referee.command) as engine:
        engine.subscribe(listen)
        cancelled = await engine.judge(asked)
        await waiting.wait()
        await engine.cancel()
        assert isinstance(await cancelled.end(), Cancelled)
        waiting.clear()
        run = await engine.judge(asked)
        await waiting.wait()
        assert engine.running == run.run_id
        other.close()
        end = await run.end()
        assert isinstance(end, Finished)
        assert end.result.verdict is Verdict.PASS, end.result.detail
