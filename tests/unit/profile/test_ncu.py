"""Nsight Compute: its CSV as a short text, and the world in which it runs, on CPU ranks with a stand-in for ncu."""

import os
import shutil
import stat
import sys
import time
from pathlib import Path

import msgspec
import pytest
from playing_agent import RIGHT
from stored_runs import ALL_REDUCE as SETTING

import arena.profile.profiling
from arena.errors import MachineError, UsageError
from arena.profile.ncu import NcuKernel, NcuRule, kernel_lines, ncu_kernels, ncu_text, rule_lines
from arena.profile.profile_process import NcuProfiled, ProfileRequest
from arena.profile.profile_process import decode as decode_message
from arena.profile.profile_process import encode as encode_message
from arena.profile.profiling import profile_with_ncu
from sandbox.jail.choice import choose
from sandbox.machine.devices import Cpu
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.profile import APPLICATION, KERNEL, NcuAnswer, NcuPlan, RankProfile, Replay, encode
from sandbox.rank.profiling.ncu import command, reason
from sandbox.worlds import profiled_world
from sandbox.worlds.profiled_world import REPLAYS, Place, ncu_world

HERE = Path(__file__).parent
REPORT = (HERE / "ncu_report.csv").read_text()


def test_longest_kernels_come_with_rules_that_matter(snapshot: object) -> None:
    """The report has torch's kernels of one call on an H100, by ncu 2025.3.1, without the rows of other metrics."""
    refused = {KERNEL: "it did not end within 60 s"}
    found = NcuProfiled(ncu_kernels(REPORT), APPLICATION, 93.2, refused, "/home/a/x.ncu-rep")
    assert "\n".join(ncu_text(found)) == snapshot


def test_whole_kernel_and_large_gains_come_first() -> None:
    slow = NcuKernel(
        "slow",
        900.0,
        rules=[NcuRule("A", "OPT", "Local.", 90.0, "local"), NcuRule("B", "OPT", "Slow.", 10.0, "global")],
    )
    fast = NcuKernel(
        "fast", 100.0, rules=[NcuRule("C", "OPT", "Fast.", 50.0, "global"), NcuRule("D", "WRN", "No.", 99.0, "global")]
    )
    assert rule_lines([fast, slow]) == [
        "→ slow: Slow. (estimated gain 10 %)",
        "→ fast: Fast. (estimated gain 50 %)",
        "→ slow: Local. (estimated local gain 90 %)",
    ]


def test_foreign_text_gives_no_kernels() -> None:
    for text in ("", "no kernels", '"ID"\n"0"\n', REPORT[:200].replace('"', ""), "\0" * 100):
        assert ncu_kernels(text) == []
    hostile = REPORT.replace("unrolled_", "\x1b[31munrolled_")
    assert "\x1b" not in "".join(kernel_lines(ncu_kernels(hostile)))


def test_report_that_is_cut_keeps_what_was_read() -> None:
    assert [each.us for each in ncu_kernels(REPORT[: REPORT.index('\n"1",') + 30])] == [203.424]


def test_clocks_are_never_touched_and_collectives_left_out() -> None:
    with Place(SETTING, "kernel.py", Kernel("pass"), Cpu(), choose()) as place:
        plan = NcuPlan(place.plan(), "/usr/bin/ncu", 3, 4, REPLAYS)
    for replay in REPLAYS:
        words = command(plan, replay, Path("/tmp/report.ncu-rep"))
        assert words[words.index("--clock-control") + 1] == "none"
        assert words[words.index("--replay-mode") + 1] == replay.mode
        assert "nccl" in words[words.index("--kernel-name") + 1]
        assert replay.limit_s <= 360.0
    assert encode(plan)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("==PROF== Connected\n==ERROR== No\npkb-arena: rank 1 failed: ValueError: no\n", "rank 1 failed: ValueError: no"),
        ("==ERROR== ERR_NVGPUCTRPERM - no permission\n", "ERR_NVGPUCTRPERM - no permission"),
        ("==WARNING== No kernels were profiled.\n", "No kernels were profiled."),
        ("", ""),
    ],
)  # fmt: skip
def test_reason_is_rank_s_or_ncu_s(said: str, found: str) -> None:
    assert reason(said.splitlines()) == found


def request(device: str, tmp_path: Path) -> ProfileRequest:
    setting = msgspec.structs.replace(SETTING, device=device)
    return ProfileRequest(setting=setting, kernel_name="k.py", source=RIGHT, ncu_file=str(tmp_path / "a.ncu-rep"))


def test_missing_gpus_and_missing_ncu_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="Nsight Compute profiles kernels of GPUs"):
        profile_with_ncu(request("cpu", tmp_path), lambda _: None)
    monkeypatch.setattr(arena.profile.profiling, "find_ncu", lambda: "")
    with pytest.raises(MachineError, match=r"Nsight Compute \(ncu\) is not installed"):
        profile_with_ncu(request("cuda", tmp_path), lambda _: None)


@pytest.mark.parametrize(
    ("refused", "advice"),
    [
        ({KERNEL: "ERR_NVGPUCTRPERM - no permission"}, "NVreg_RestrictProfilingToAdminUsers=0"),
        ({KERNEL: "LaunchFailed", APPLICATION: "it did not end within 240 s"}, "without --ncu"),
    ],
)
def test_failed_replays_each_say_their_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: dict[str, str], advice: str
) -> None:
    monkeypatch.setattr(arena.profile.profiling, "find_ncu", lambda: "/usr/bin/ncu")
    monkeypatch.setattr(arena.profile.profiling, "ncu_world", lambda *_: (NcuAnswer(refused=refused), b""))
    with pytest.raises(MachineError) as raised:
        profile_with_ncu(request("cuda", tmp_path), lambda _: None)
    assert all(f"{mode} replay: {why}" in raised.value.message for mode, why in refused.items())
    assert advice in raised.value.advice
    assert not list(tmp_path.iterdir())


def test_a_report_is_written_beside_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena.profile.profiling, "find_ncu", lambda: "/usr/bin/ncu")
    answer = NcuAnswer(KERNEL, 12.5, REPORT)
    monkeypatch.setattr(arena.profile.profiling, "ncu_world", lambda *_: (answer, b"a report"))
    found = profile_with_ncu(request("cuda", tmp_path), lambda _: None)
    assert (len(found.kernels), found.mode, found.refused) == (3, KERNEL, {})
    assert Path(found.file).read_bytes() == b"a report"
    assert decode_message(encode_message(found)) == found


# --- the world, on CPU ranks ------------------------------------------------------------------------------------


@pytest.fixture
def ncu(tmp_path: Path) -> Path:
    """The stand-in, in a folder that is visible in the jail."""
    folder = tmp_path / "ncu"
    folder.mkdir()
    program = folder / "ncu"
    program.write_text(f"#!{sys.executable}\n" + (HERE / "stand_in_ncu.py").read_text())
    program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    shutil.copy(HERE / "ncu_report.csv", folder / "report.csv")
    for path in (tmp_path, folder):
        path.chmod(0o755)
    return program


def test_reports_of_others_and_late_ones_are_refused() -> None:
    report = encode(RankProfile(0))
    assert profiled_world._decoded(0, report) == RankProfile(0)
    with pytest.raises(profiled_world.ProfileFailed, match="rank 1 sent an invalid report"):
        profiled_world._decoded(1, report)
    reading, _open = os.pipe()
    with pytest.raises(profiled_world.ProfileFailed, match="did not end in time"):
        profiled_world._read_whole(reading, 100, time.monotonic())


def replays(limit_s: float = 60.0) -> list[Replay]:
    return [msgspec.structs.replace(each, limit_s=limit_s) for each in REPLAYS]


@pytest.mark.slow
def test_rank_0_is_profiled_while_peers_take_part(ncu: Path) -> None:
    answer, data = ncu_world(Place(SETTING, "kernel.py", Kernel(RIGHT), Cpu(), choose()), str(ncu), replays())
    assert answer.mode == KERNEL, answer
    assert answer.csv == REPORT
    assert data == b"a report"
    assert answer.refused == {}


@pytest.mark.slow
@pytest.mark.further
def test_hanging_replay_ends_and_next_is_tried(ncu: Path) -> None:
    (ncu.parent / "hangs").write_text(KERNEL)
    limits = [msgspec.structs.replace(replays()[0], limit_s=1.0), replays()[1]]
    answer, data = ncu_world(Place(SETTING, "kernel.py", Kernel(RIGHT), Cpu(), choose()), str(ncu), limits)
    assert answer.mode == APPLICATION, answer
    assert data == b"a report"
    assert answer.refused == {KERNEL: "it did not end within 1 s"}
