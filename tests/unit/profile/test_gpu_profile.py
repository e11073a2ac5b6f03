"""Why a kernel on GPUs is slow: figures and sentences from written reports, and their words, lanes and rows."""

import json
from typing import Any

import msgspec
import pytest

from arena.cli.profile import _print, lane
from arena.profile import report as page
from arena.profile.gpu_rules import GpuFigures, Least, busy_parts, gpu_figures, gpu_ranks, short_name
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


def tiny(count: int, us: float, every: float) -> RankProfile:
    return report(0, [("kernel", "void tiny<int>()", 20.0 + every * at, us) for at in range(count)])


def synced(gap: float, waits: bool = True) -> RankProfile:
    work: list[Work] = []
    for at in range(5):
        begin = 200.0 * at
        work.append(("kernel", f"k{at}", begin, 190.0 - gap))
        work += [("sync", "cudaStreamSynchronize", begin, 195.0 - gap)] * waits
    return report(0, work)


def collective(start: float) -> list[Work]:
    return [("wait", "ncclDevKernel_AllReduce", start, 950.0 - start)]


def scene(*reports: RankProfile, outside: Outside | None = None, **least: float) -> tuple[WorldProfile, Least]:
    return WorldProfile(list(reports), outside), msgspec.structs.replace(LEAST, **least)


def over_link(gigabytes: float, **more: Any) -> Outside:
    """Returns counters over the same row, in which the links carried so many GB a second."""
    return counted(sent=round(100 * gigabytes * 1e6), **more)


PLAIN = report(0, [("kernel", "push", 0.0, 300.0)])
LATE = report(1, [("kernel", "gemm", 20.0, 780.0), *collective(800.0)])
EVEN: list[Work] = [("kernel", f"k{at}", 250.0 * at, 200.0) for at in range(4)]
ONCE: list[Work] = [("kernel", "a", 0.0, 90.0), ("sync", "s", 0.0, 95.0), ("kernel", "b", 600.0, 300.0)]
BLIND = RankProfile(0, unseen="torch's profiler did not start: RuntimeError: CUPTI")
NEEDED = {"sent": 340e6, "received": 340e6}
SCENES = {
    "many small kernels": scene(tiny(200, 1.5, 4.5)),
    "few small kernels": scene(tiny(8, 1.5, 4.5)),
    "kernels that are not small": scene(tiny(30, 20.0, 30.0)),
    "small kernels without gaps": scene(tiny(240, 4.0, 4.0)),
    "long gaps after synchronisations": scene(synced(100.0)),
    "a long gap after one synchronisation": scene(report(0, ONCE)),
    "short gaps after synchronisations": scene(synced(5.0)),
    "long gaps without synchronisations": scene(synced(100.0, waits=False)),
    "a late rank": scene(report(0, collective(50.0)), LATE),
    "a rank that is less late": scene(report(0, collective(50.0)), report(1, collective(349.0))),
    "collectives without a late rank": scene(report(0, collective(50.0)), report(1, collective(60.0))),
    "collectives for half of a call": scene(report(0, collective(450.0))),
    "collectives for less": scene(report(0, collective(451.0))),
    "at the link's nominal peak": scene(PLAIN, outside=over_link(350), **NEEDED),
    "at its measured peak": scene(PLAIN, outside=over_link(350), link=370e9, **NEEDED),
    "not at its measured peak": scene(PLAIN, outside=over_link(350), link=470e9, **NEEDED),
    "twice the bytes at the link": scene(PLAIN, outside=over_link(350), sent=175e6, received=340e6),
    "a link of unknown peak": scene(PLAIN, outside=over_link(350, link_peak=None), **NEEDED),
    "bytes over the link that need not be": scene(PLAIN, outside=over_link(190), sent=100e6),
    "bytes over the link that must be": scene(PLAIN, outside=over_link(190), sent=180e6),
    "bytes that take little time": scene(PLAIN, outside=over_link(20)),
    "at HBM": scene(PLAIN, outside=counted(dram=0.8), local=3.8e9),
    "too many bytes at HBM": scene(PLAIN, outside=counted(dram=0.8), local=0.7e9),
    "twice the bytes through HBM": scene(PLAIN, outside=counted(dram=0.5), local=1.3e9),
    "bytes through HBM that must be": scene(PLAIN, outside=counted(dram=0.5), local=2.3e9),
    "few bytes through HBM": scene(PLAIN, outside=counted(dram=0.1), local=1.3e9),
    "bytes through HBM not counted": scene(PLAIN, outside=counted(dram=None)),
    "an idle GPU": scene(report(0, [("kernel", "a", 600.0, 100.0)])),
    "a busy GPU": scene(report(0, EVEN)),
    "nothing seen": scene(RankProfile(0)),
    "at HBM, without spans": scene(BLIND, outside=counted(dram=0.8)),
    "without spans": scene(BLIND, outside=counted()),
}


def test_each_rule_speaks_where_it_should(snapshot: object) -> None:
    told = [f"{name}: {each.diagnosis}  → {each.advice}" for name, seen in SCENES.items() for each in gpu_ranks(*seen)]
    assert "\n".join(told) == snapshot


def test_without_spans_the_drivers_figures_still_speak() -> None:
    found = gpu_ranks(*SCENES["without spans"])
    assert found[0].row_us == 1_000.0
    assert page.unseen_lines(found, [BLIND]) == [f"rank 0: {BLIND.unseen}"]


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


def test_a_report_on_gpus_is_printed_whole(capsys: pytest.CaptureFixture[str], snapshot: object) -> None:
    """And the lines of figures that are missing."""
    _print(made())
    bare, (first, second) = GpuFigures(0, LEAST, unseen="why"), made().gpu_figures
    lacking = [
        msgspec.structs.replace(bare, rank=rank, counted=GpuCounted(missing=["no bytes over NVLink: why"]))
        for rank in (0, 1)
    ]
    powered = GpuFigures(0, LEAST, row_us=1_000.0, counted=GpuCounted(watts=400.0, watts_error=0.05))
    lines = [page.TRUSTED_HEAD, page.trusted_row(bare), page.SEEN_HEAD, page.seen_row(second)]
    lines += page.missing_lines(Outside(1, 1.0, missing=["nothing: x"]), lacking)
    lines.append(page.power_line([powered, msgspec.structs.replace(powered, row_us=None), bare]))
    lines += page.unseen_lines([msgspec.structs.replace(first, clock_us=30.0), second], [])
    assert "\n".join([capsys.readouterr().out, *lines, page.row_words(None)]) == snapshot


def test_profile_of_gpus_travels_whole_to_app() -> None:
    found = made()
    assert decode(encode_message(found)) == found
