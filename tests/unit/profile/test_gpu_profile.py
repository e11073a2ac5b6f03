"""Why a kernel on GPUs is slow: figures and sentences from written reports, and their words, lanes and rows."""

import json
from typing import Any

import msgspec
import pytest

from arena.cli.profile import _print, lane
from arena.profile import report as page
from arena.profile.gpu_rules import GpuFigures, Least, busy_parts, diagnosis, gpu_figures, gpu_ranks, short_name
from arena.profile.profile_process import Profiled, decode
from arena.profile.profile_process import encode as encode_message
from arena.profile.timeline import chrome_trace, typical_call
from sandbox.machine.gpu_counters import GpuCounted
from sandbox.protocol.profile import Outside, RankProfile, Span, WorldProfile
from sandbox.rank.profiling.spans import CALL

MB = 1 << 20
LEAST = Least(local=100e6, sent=10e6, received=10e6)
Work = tuple[str, str, float, float]
"""(kind, name, start, length) in a call, in microseconds."""


# --- from spans to figures ----------------------------------------------------------------------------------------


def report(
    rank: int, work: list[Work], *, call_us: float = 1_000.0, host_us: float = 300.0, calls: int = 3
) -> RankProfile:
    spans = []
    for at in range(calls):
        begin = 5_000.0 + 2_000.0 * at
        spans += [Span("call", "solution", begin, call_us), Span("host", CALL, begin, host_us)]
        spans += [Span(kind, name, begin + start, us) for kind, name, start, us in work]
    return RankProfile(rank, spans)


def said(*reports: RankProfile, outside: Outside | None = None, least: Least = LEAST) -> list[str]:
    return [each.diagnosis for each in gpu_ranks(WorldProfile(list(reports), outside), least)]


def counted(**shares: Any) -> Outside:
    """Returns counters over a row of 100 calls of 1000 µs. Bytes are those of the whole row."""
    given: dict[str, Any] = {"link_peak": 478e9, "dram_peak": 4917e9, "dram": 0.01, "sent": 0, "received": 0}
    return Outside(100, 0.1, [GpuCounted(**(given | shares))])


def test_figures_are_of_a_call() -> None:
    work: list[Work] = [
        ("kernel", "void at::gemm<float>(int)", 100.0, 300.0),
        ("copy", "Memcpy DtoD", 350.0, 100.0),  # on another stream, for 50 µs beside the kernel
        ("sync", "cudaStreamSynchronize", 440.0, 20.0),
        ("kernel", "small", 600.0, 100.0),
    ]
    found = gpu_figures(WorldProfile([report(0, work)], counted(sent=500 * MB, dram=0.2)), LEAST)[0]
    assert (found.call_us, found.busy_us, found.idle_us) == (1_000.0, 450.0, 550.0)
    assert (found.kernels, found.kernel_us, found.largest, found.largest_us) == (2, 200.0, "gemm", 300.0)
    assert (found.syncs, found.after_sync_us) == (1, 150.0)
    assert (found.row_us, found.counted.sent) == (1_000.0, 5 * MB)
    assert found.dram_bytes == pytest.approx(0.2 * 4917e9 * 1e-3)
    assert found.rate(found.counted.sent) == pytest.approx(5 * MB * 1e3)


def test_stamps_are_medians_of_blocks_and_calls() -> None:
    work: list[Work] = [("kernel", "k", 0.0, 900.0), ("stamp", "0 to 1", 10.0, 30.0), ("stamp", "0 to 1", 12.0, 50.0)]
    work += [("op", "C++ add", 1.0, 8.0), ("op", "aten::mm", 10.0, 20.0)]
    found = gpu_ranks(WorldProfile([report(0, work), report(1, work[:1])]), LEAST)
    assert found[0].stamps == {"0 to 1": 40.0, "C++ add": 8.0}
    (line,) = page.stamp_lines(found)
    assert line.endswith("medians, share of the call: 0 to 1 40.0 (4 %), C++ add 8.0 (1 %)")
    assert (found[0].busy_us, found[0].kernels) == (900.0, 1)
    assert lane(typical_call([report(0, work)]).lanes[0], 1_000.0, 10) == "░" * 9 + "·"
    events = json.loads(chrome_trace([report(0, work)]))["traceEvents"]
    assert "block 0: between stamps" in [each["args"]["name"] for each in events if each["name"] == "thread_name"]


def test_busy_parts_join_what_overlaps() -> None:
    work = [Span("kernel", "a", 0.0, 10.0), Span("kernel", "b", 20.0, 5.0), Span("copy", "c", 8.0, 4.0)]
    assert busy_parts(work) == [(0.0, 12.0), (20.0, 25.0)]


def test_the_name_of_a_kernel_is_its_own() -> None:
    assert short_name("void at::native::(anonymous namespace)::fill<float, 4>(int, float*)") == "fill"
    assert short_name("nvjet_hsh_128x256") == "nvjet_hsh_128x256"
    assert short_name("cudnn_generated_" + 9 * "64x128x128_") == "cudnn_generated_64x128x128_64x128x128_64x128x12…"


# --- sentences: each rule fires, and does not -----------------------------------------------------------------------


def tiny(count: int, us: float, every: float) -> list[Work]:
    return [("kernel", "void tiny<int>()", 20.0 + every * at, us) for at in range(count)]


def test_only_many_small_kernels_are_launch_bound() -> None:
    found = gpu_ranks(WorldProfile([report(0, tiny(200, 1.5, 4.5))]), LEAST)[0]
    assert found.diagnosis.startswith("launch-bound: 200 kernels a call, each of 1.5 µs; gaps between them 70 %")
    assert "CUDA graph" in found.advice
    assert not said(report(0, tiny(8, 1.5, 4.5)))[0].startswith("launch-bound")
    assert not said(report(0, tiny(30, 20.0, 30.0)))[0].startswith("launch-bound")
    assert not said(report(0, tiny(240, 4.0, 4.0)))[0].startswith("launch-bound")


def synced(gap: float) -> list[Work]:
    work: list[Work] = []
    for at in range(5):
        begin = 200.0 * at
        work += [("kernel", f"k{at}", begin, 190.0 - gap), ("sync", "cudaStreamSynchronize", begin, 195.0 - gap)]
    return work


def test_only_long_gaps_after_synchronisations_are_host_bound() -> None:
    found = gpu_ranks(WorldProfile([report(0, synced(100.0))]), LEAST)[0]
    assert found.diagnosis.startswith("host-bound: 5 synchronisations a call, behind which the GPU idles 44 %")
    assert ".item()" in found.advice
    assert not said(report(0, synced(5.0)))[0].startswith("host-bound")
    unsynced = [each for each in synced(100.0) if each[0] != "sync"]
    assert not said(report(0, unsynced))[0].startswith("host-bound")


def collective(start: float) -> list[Work]:
    return [("wait", "ncclDevKernel_AllReduce", start, 950.0 - start)]


def test_spinning_collective_names_late_rank() -> None:
    late: list[Work] = [("kernel", "gemm", 20.0, 780.0), *collective(800.0)]
    found = gpu_ranks(WorldProfile([report(0, collective(50.0)), report(1, late)]), LEAST)
    assert found[0].diagnosis.startswith("waits for rank 1: its collectives spin 75 % of a call (750 µs)")
    assert "rank 1 comes late" in found[0].advice
    assert found[1].diagnosis.startswith("computes: gemm takes 78 %")
    both = said(report(0, collective(50.0)), report(1, collective(60.0)))
    assert [each.partition(":")[0] for each in both] == ["exchanges", "exchanges"]
    starts = (450.0, 451.0)  # half of a call, and less
    assert [said(report(0, collective(start)))[0].startswith("exchanges") for start in starts] == [True, False]


def test_link_peak_is_measured_or_nominal() -> None:
    row = counted(sent=round(100 * 350e6), received=0)  # 350 GB/s
    plain = report(0, [("kernel", "push", 0.0, 300.0)])
    least = msgspec.structs.replace(LEAST, sent=340e6, received=340e6)
    nominal = said(plain, outside=row, least=least)[0]
    assert nominal.startswith("at the link: 350 GB/s over NVLink, 73 % of its peak (by the")
    measured = msgspec.structs.replace(least, link=370e9)
    assert "95 % of its peak (measured)" in said(plain, outside=row, least=measured)[0]
    slow = msgspec.structs.replace(least, link=470e9)
    assert not said(plain, outside=row, least=slow)[0].startswith("at the link")
    twice = msgspec.structs.replace(least, sent=175e6)
    assert said(plain, outside=row, least=twice)[0].endswith("moves 2.0x the bytes over it that it must")
    unknown = counted(sent=round(100 * 350e6), link_peak=None)
    assert not said(plain, outside=unknown, least=least)[0].startswith("at the link")


def test_bytes_over_the_link_that_need_not_be() -> None:
    plain = report(0, [("kernel", "push", 0.0, 300.0)])
    row = counted(sent=round(100 * 190e6))  # 190 GB/s, 40 % of the links
    least = msgspec.structs.replace(LEAST, sent=100e6)
    assert said(plain, outside=row, least=least) == ["moves 1.9x the bytes over NVLink that it must"]
    assert "NVLink" not in said(plain, outside=row, least=msgspec.structs.replace(LEAST, sent=180e6))[0]
    little = counted(sent=round(100 * 20e6))
    assert "NVLink" not in said(plain, outside=little)[0]  # twice the least bytes, but they take little time


def test_hbm_bound_kernel_may_move_too_much() -> None:
    plain = report(0, [("kernel", "copy", 0.0, 300.0)])
    busy = counted(dram=0.8)  # 3.9 GB in 1000 µs
    needed = msgspec.structs.replace(LEAST, local=3.8e9)
    (least,) = gpu_ranks(WorldProfile([plain], busy), needed)
    assert least.diagnosis == "at HBM: 80 % of its bandwidth"
    assert least.advice.startswith("only fewer bytes help")
    much = gpu_ranks(WorldProfile([plain], busy), msgspec.structs.replace(LEAST, local=0.7e9))[0]
    assert much.diagnosis == "at HBM: 80 % of its bandwidth; moves 5.6x the bytes that it must"
    assert much.advice.startswith("fuse passes")
    half = msgspec.structs.replace(LEAST, local=1.3e9)
    twice = said(plain, outside=counted(dram=0.5), least=half)
    assert twice == ["moves 1.9x the bytes through HBM that it must (50 % of its bandwidth)"]
    assert "HBM" not in said(plain, outside=counted(dram=0.5), least=msgspec.structs.replace(LEAST, local=2.3e9))[0]
    assert "HBM" not in said(plain, outside=counted(dram=0.1), least=half)[0]
    assert "HBM" not in said(plain, outside=counted(dram=None))[0]


def test_slow_host_launches_stand_out_alone() -> None:
    assert said(report(0, [("kernel", "a", 600.0, 100.0)]))[0].startswith("the GPU idles: 90 % of a call")
    even: list[Work] = [("kernel", f"k{at}", 250.0 * at, 200.0) for at in range(4)]
    assert said(report(0, even))[0].startswith("nothing stands out: 4 kernels")
    assert said(RankProfile(0))[0] == "what takes its time was not seen"


def test_without_spans_the_drivers_figures_still_speak() -> None:
    blind = RankProfile(0, unseen="torch's profiler did not start: RuntimeError: CUPTI")
    found = gpu_ranks(WorldProfile([blind], counted(dram=0.8)), LEAST)
    assert found[0].diagnosis.startswith("at HBM: 80 %")
    assert found[0].row_us == 1_000.0
    assert said(blind, outside=counted())[0] == "what takes its time was not seen"
    assert page.unseen_lines(found, [blind]) == ["rank 0: torch's profiler did not start: RuntimeError: CUPTI"]


# --- words, lanes, trace --------------------------------------------------------------------------------------------


def made(world: int = 2) -> Profiled:
    """Returns a profile in which the first rank waits for the others in a collective."""
    reports = []
    for rank in range(world):
        work: list[Work] = [("launch", "cudaLaunchKernel", 20.0 + 10.0 * at, 5.0) for at in range(8)]
        work += [("op", "aten::mm", 15.0, 10.0), ("sync", "cudaStreamSynchronize", 150.0, 100.0)]
        length = 700.0 if rank else 200.0
        work += [("kernel", "void gemm<float>()", 50.0, length), *collective(60.0 + length)]
        reports.append(report(rank, work))
    gpus = [GpuCounted(12_100_000 * 250, 12_100_000 * 250, 0.44, 0.31, 0.12, 478e9, 4917e9)] * world
    outside = Outside(250, 0.263, gpus)
    return Profiled(reports, [], gpu_ranks(WorldProfile(reports, outside), LEAST), outside)


def test_a_rank_on_a_gpu_has_two_lanes(capsys: pytest.CaptureFixture[str]) -> None:
    found = made()
    timeline = typical_call(found.reports)
    assert lane(timeline.lanes[0], timeline.us, 20) == "·░░░░▒▒▒▒▒▒▒▒▒▒████·"
    assert {piece.sort for piece in timeline.host_lanes[0]} == {"code", "launch", "sync"}
    assert "idle" in timeline.words["code"]
    assert [piece.sort for piece in timeline.lanes[0]].count("operation") == 1  # and none of the host
    late = found.reports[1].spans
    late[:] = [msgspec.structs.replace(span, start_us=span.start_us + 200.0) for span in late]
    _print(found)
    assert "\n   GPU      " in capsys.readouterr().out  # the lane of a late rank starts late


def test_trace_has_rows_for_host_and_streams() -> None:
    spans = [Span("call", "solution", 0.0, 9.0), Span("host", CALL, 0.0, 4.0)]
    spans.append(Span("launch", "cudaLaunchKernel", 1.0, 1.0))
    spans += [Span("kernel", "\x1b[31mk", 2.0, 4.0, 7), Span("copy", "c", 3.0, 4.0, 13), Span("odd", "?", 1.0, 1.0)]
    events = json.loads(chrome_trace([RankProfile(0, spans)]))["traceEvents"]
    rows = {each["name"]: each["tid"] for each in events if each["ph"] == "X"}
    names = {each["tid"]: each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert names[rows["c"]] == "GPU: stream 13"
    assert [name for name in names.values() if name.startswith("GPU")] == ["GPU: stream 7", "GPU: stream 13"]
    assert names[rows["cudaLaunchKernel"]].startswith("host: launches")
    assert len(set(rows.values())) == 5
    assert "?" not in rows
    assert "\x1b" not in "".join(rows)


def test_rows_align_and_missing_figures_are_dashes() -> None:
    found = made().gpu_figures
    assert len(page.trusted_row(found[0])) == len(page.TRUSTED_HEAD)
    assert len(page.seen_row(found[0])) == len(page.SEEN_HEAD)
    assert page.trusted_row(found[0]).split()[2:4] == ["1,052.0", "12.1"]
    assert page.summary(made()) == ("from outside", "1,052.0 µs a call, 250 calls in a row, 0.26 s")
    counters = page.above_lanes(made())
    assert counters[0] == (page.HEAD, page.TRUSTED_HEAD)
    assert [line.split()[:2] for _, line in counters[1:3]] == [["rank", "0"], ["rank", "1"]]
    seen = page.below_lanes(made())
    assert any(line.startswith("a call takes 1,000 µs under the profiler and 1,052 µs without it") for _, line in seen)
    assert sum(role == page.ROW for role, _ in seen) == 2
    bare = GpuFigures(0, LEAST, unseen="why")
    assert page.trusted_row(bare).count(" -") == 8
    assert len(page.trusted_row(bare)) == len(page.TRUSTED_HEAD)
    assert diagnosis(bare)[0] == "what takes its time was not seen"
    lacking = [
        msgspec.structs.replace(bare, rank=rank, counted=GpuCounted(missing=["no bytes over NVLink: why"]))
        for rank in (0, 1)
    ]
    assert page.missing_lines(Outside(1, 1.0, missing=["nothing: x"]), lacking) == [
        "nothing: x",
        "ranks 0, 1: no bytes over NVLink: why",
    ]
    powered = GpuFigures(0, LEAST, row_us=1_000.0, counted=GpuCounted(watts=400.0, watts_error=0.05))
    assert page.power_line([powered, msgspec.structs.replace(powered, row_us=None), bare]) == (
        "power, and energy a call: rank 0 400 W, 400 mJ (±5 %)"
    )
    off = msgspec.structs.replace(found[0], clock_us=30.0)
    assert page.unseen_lines([off, found[1]], []) == ["rank 0: its GPU's timestamps are 30 µs off at the least"]
    assert "did not come to their end" in page.row_words(None)


def test_profile_of_gpus_travels_whole_to_app() -> None:
    found = made()
    assert decode(encode_message(found)) == found
