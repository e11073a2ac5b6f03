"""Profiles of test kernels on real GPUs name what is wrong with them. A failure's message holds the whole profile."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playing_agent import RIGHT

from arena.machine.facts import visible_gpus
from arena.profile import report as page
from arena.profile.gpu_rules import GpuFigures, short_name
from arena.profile.ncu import ncu_text, rule_lines
from arena.profile.profile_process import NcuProfiled, Profiled, ProfileRequest
from arena.profile.profiling import profile_ranks, profile_with_ncu
from arena.profile.rules import first_failure
from arena.profile.timeline import typical_call, write_trace
from arena.runs.engine import Engine
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Setting
from sandbox.timing.roofline import Peaks
from sandbox.worlds.profiled_world import find_ncu

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240)]

LAUNCH_BOUND = """
import torch
def solution(tensor):
    out = tensor.clone()
    for _ in range(200):
        out.add_(1.0)
    return out
"""
HOST_BOUND = """
import torch
def solution(tensor):
    out = tensor.clone()
    for _ in range(10):
        out.add_(1.0)
        if float(out[0, 0]) == 12345.0:
            out.zero_()
        torch.cuda.synchronize()
    return out
"""
MOVES_TOO_MUCH = """
import torch
def solution(tensor):
    for _ in range(10):
        tensor = tensor.clone()
    return tensor
"""
RANK_1_SLEEPS = """
import time
import torch.distributed as dist
def solution(tensor):
    if dist.get_rank() == 1:
        time.sleep(0.005)
    out = tensor.clone()
    dist.all_reduce(out)
    return out
"""
AT_THE_LINK = """
import torch
import torch.distributed as dist
from sandbox.kit import symm
def solution(tensor):
    mine = symm.stage(tensor)
    symm.barrier()
    theirs = symm.peers(mine)[1 - dist.get_rank()]
    out = torch.empty_like(tensor)
    for _ in range(10):
        out.copy_(theirs)
    symm.barrier()
    return out
"""
STAMPED = """
from sandbox.kit import cuda
mod = cuda.compile(r'''
PX_DI void wait_ns(u64 ns) { const u64 start = px_now_ns(); while (px_now_ns() - start < ns) {} }
extern "C" __global__ void spin(bf16* x) {
    if (threadIdx.x) return;
    px_stamp(0);
    wait_ns(30000);
    px_stamp(1);
    wait_ns(60000);
    px_stamp(2);
}
''')
def solution(tensor):
    out = tensor.clone()
    mod.spin[4, 32](out)
    return out
"""
LARGE = {"M": 8192, "N": 8192}
"""128 MiB in bfloat16: more than a GPU's cache."""


def setting_of(sizes: dict[str, int]) -> Setting:
    """Problem 1 on two GPUs, or on the only one."""
    choice = Choice(preset="tiny", world=min(2, visible_gpus()), device="cuda", sizes=sizes)
    return choose_setting(load_catalogue().find("1"), choice, Settings())


@pytest.fixture(scope="module")
def profiled() -> Callable[..., Profiled]:
    """profiled(source, peaks, **sizes): a profile in which no rank failed. peaks: from this machine's calibration."""

    def make(source: str, peaks: dict[str, float] | None = None, **sizes: int) -> Profiled:
        request = ProfileRequest(setting=setting_of(sizes), kernel_name="kernel.py", source=source, peaks=peaks or {})
        found = profile_ranks(request, lambda _: None)
        failed = first_failure(found.reports)
        assert failed is None, failed.failed
        return found

    return make


def told(found: Profiled) -> str:
    """All that the profile says, for the message of a failure."""
    ranks = found.gpu_figures
    kinds = {
        (span.kind, span.name)
        for report in found.reports
        for span in report.spans
        if span.kind not in ("call", "host", "op")
    }
    lines = [
        page.row_words(found.outside),
        page.TRUSTED_HEAD,
        *map(page.trusted_row, ranks),
        *page.missing_lines(found.outside, ranks),
        page.SEEN_HEAD,
        *map(page.seen_row, ranks),
        *page.unseen_lines(ranks, found.reports),
        *(f"rank {each.rank}: {each.diagnosis}; {each.advice}" for each in ranks),
        *(f"  {kind}: {name}" for kind, name in sorted(kinds)),
    ]
    return "\n" + "\n".join(lines)


def seen(found: Profiled) -> list[GpuFigures]:
    """The figures of all GPUs. Fails if the work of a GPU was not recorded."""
    assert not any(each.unseen for each in found.gpu_figures), told(found)
    return found.gpu_figures


def test_many_tiny_kernels_are_launch_bound(profiled):
    found = profiled(LAUNCH_BOUND)
    for rank in seen(found):
        assert rank.diagnosis.startswith("launch-bound"), told(found)
        assert 195 <= rank.kernels <= 210, told(found)
        assert rank.kernel_us < 10.0, told(found)


def test_values_that_host_waits_for_are_host_bound(profiled):
    found = profiled(HOST_BOUND)
    for rank in seen(found):
        assert rank.diagnosis.startswith("host-bound"), told(found)
        assert 20 <= rank.syncs <= 30, told(found)


def test_copies_that_nobody_needs_move_too_much(profiled):
    found = profiled(MOVES_TOO_MUCH, **LARGE)
    for rank in found.gpu_figures:
        if rank.counted.dram is None:
            pytest.skip(f"the driver does not say: {rank.counted.missing}")
        assert rank.dram_bytes is not None, told(found)
        # Ten reads and ten writes of a tensor that must be read and written once; a part may stay in the cache.
        assert 5.0 <= rank.dram_bytes / rank.least.local <= 12.0, told(found)
        assert "x the bytes" in rank.diagnosis, told(found)


def test_clock_outside_and_spans_agree_on_long_call(profiled):
    found = profiled(MOVES_TOO_MUCH, **LARGE)
    for rank in seen(found):
        assert rank.row_us is not None, told(found)
        assert rank.busy_us == pytest.approx(rank.row_us, rel=0.25), told(found)


def test_clocks_and_the_trace_fit_together(profiled, tmp_path: Path):
    found = profiled(RIGHT, **LARGE)
    for rank in seen(found):
        assert rank.clock_us < 20.0, told(found)
    timeline = typical_call(found.reports)
    assert timeline is not None, told(found)
    assert timeline.host_lanes, told(found)
    write_trace(tmp_path / "trace.json", found.reports)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(event["name"] == "thread_name" and "GPU: stream" in event["args"]["name"] for event in events)


def test_stamps_say_how_long_kernel_is_at_place(profiled):
    found = profiled(STAMPED)
    for rank, report in zip(seen(found), found.reports, strict=True):
        assert list(rank.stamps) == ["0 to 1", "1 to 2"], told(found)
        assert rank.stamps["0 to 1"] == pytest.approx(30.0, rel=0.2), told(found)
        assert rank.stamps["1 to 2"] == pytest.approx(60.0, rel=0.2), told(found)
        assert 0.0 < report.stamp_us < 50.0, f"{report.stamp_us} {told(found)}"
        kernel = next(span for span in report.spans if span.kind == "kernel" and "spin" in span.name)
        stamp = next(span for span in report.spans if span.kind == "stamp" and span.start_us > kernel.start_us - 200.0)
        apart = stamp.start_us - kernel.start_us
        assert abs(apart) < report.stamp_us + 20.0, f"{apart} us from the kernel's begin; {told(found)}"


WITH_NCCL = """
import torch
import torch.distributed as dist
def solution(tensor):
    out = tensor.float() * 2.0
    dist.all_reduce(out)
    return torch.softmax(out, -1).to(tensor.dtype)
"""


def with_ncu(problem: str, source: str, file: Path) -> NcuProfiled:
    if not find_ncu():
        pytest.skip("Nsight Compute is not installed")
    choice = Choice(preset="production", world=min(2, visible_gpus()), device="cuda")
    setting = choose_setting(load_catalogue().find(problem), choice, Settings())
    request = ProfileRequest(setting=setting, kernel_name="kernel.py", source=source, ncu_file=str(file))
    found = profile_with_ncu(request, lambda _: None)
    print("\n".join(ncu_text(found)))
    assert file.stat().st_size > 10_000
    return found


def test_ncu_repeats_launches_of_independent_kernels(tmp_path: Path) -> None:
    found = with_ncu("1", WITH_NCCL, tmp_path / "a.ncu-rep")
    assert found.mode == "kernel", found.refused
    assert len(found.kernels) >= 3
    assert not any("nccl" in each.name.lower() for each in found.kernels)
    assert all(each.us > 0.0 and each.memory is not None and each.occupancy is not None for each in found.kernels)
    assert rule_lines(found.kernels)


@pytest.mark.peers
@pytest.mark.timeout(540)
def test_ncu_restarts_world_for_kernels_that_await_peers(tmp_path: Path) -> None:
    source = (load_catalogue().find("44").folder / "house.py").read_text()
    found = with_ncu("44", source, tmp_path / "a.ncu-rep")
    assert found.mode == "application", found.refused
    assert "kernel" in found.refused
    assert [short_name(each.name) for each in found.kernels] == ["average_codes"]
    assert found.kernels[0].compute is not None


def test_power_of_row_is_physically_possible(profiled):
    found = profiled(MOVES_TOO_MUCH, **LARGE)
    for rank in found.gpu_figures:
        if rank.counted.watts is None:
            pytest.skip(f"the driver does not say: {rank.counted.missing}")
        assert 50.0 < rank.counted.watts < 1_500.0, told(found)
        assert rank.counted.watts_error < 0.3, told(found)
        assert rank.joules is not None


@pytest.mark.peers
def test_nvlink_carries_what_an_all_reduce_must_move(profiled):
    found = profiled(RIGHT, **LARGE)
    for rank in found.gpu_figures:
        if rank.counted.sent is None:
            pytest.skip(f"the driver does not say: {rank.counted.missing}")
        assert rank.counted.sent == pytest.approx(rank.least.sent, rel=0.3), told(found)


@pytest.mark.peers
def test_a_rank_that_sleeps_is_waited_for(profiled):
    found = profiled(RANK_1_SLEEPS)
    ranks = seen(found)
    assert ranks[0].diagnosis.startswith("waits for rank 1"), told(found)
    assert ranks[0].late_us == pytest.approx(5_000.0, rel=0.3), told(found)
    assert ranks[1].diagnosis.startswith("the GPU idles"), told(found)


@pytest.mark.peers
def test_copies_from_a_peer_are_at_the_link(profiled, paths):
    async def measured() -> Peaks:
        async with Engine(paths) as engine:
            return (await engine.calibrate(setting_of({}))).peaks

    peaks = asyncio.run(measured())
    found = profiled(AT_THE_LINK, peaks, **LARGE)
    for rank in found.gpu_figures:
        if rank.counted.received is None:
            pytest.skip(f"the driver does not say: {rank.counted.missing}")
        assert rank.link_peak is not None, peaks
        assert rank.counted.received == pytest.approx(10 * 2 * 8192 * 8192, rel=0.1), told(found)
        assert rank.diagnosis.startswith("at the link"), told(found)
