"""Why a kernel on GPUs is slow: spans from a made recording, figures and sentences from made reports, and the words for them."""

import json
import math
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from arena.cli.runs.profile import lane
from arena.profile import gpu_words
from arena.profile.chrome_trace import chrome_trace
from arena.profile.gpu_figures import GpuFigures, Least, busy_parts, gpu_figures, short_name
from arena.profile.gpu_rules import diagnosis, gpu_ranks
from arena.profile.messages import Begins, Profiled, ProfileRequest, Waits, decode
from arena.profile.messages import encode as encode_message
from arena.profile.profiling import profile_ranks
from arena.profile.timeline import median_call
from problems.catalogue import HOME
from sandbox.jail.choice import choose
from sandbox.machine.devices.cpu import Cpu
from sandbox.machine.gpu_counters import GpuCounted
from sandbox.machine.placement import RankGpu
from sandbox.protocol.events import Setting
from sandbox.protocol.profile import SAID, TOLD, Outside, RankProfile, Span, WorldProfile
from sandbox.rank.profile_spans import CALL, DRAIN, WAIT, gpu_spans, recorded, stamp_spans
from sandbox.worlds.profile_window import MOST_CALLS, calls_in_row, counted_row
from sandbox.worlds.profile_world import profile_world

MB = 1 << 20
LEAST = Least(local=100e6, sent=10e6, received=10e6)
Work = tuple[str, str, float, float]
"""(kind, name, begin, length) in a call, in microseconds."""


# --- from a recording to spans ------------------------------------------------------------------------------------


def event(
    name: str,
    start: float,
    us: float,
    *,
    gpu: bool = False,
    thread: int = 1,
    correlation: int = 0,
    stream: int = 7,
) -> Any:
    """As kineto has them; microseconds."""
    return SimpleNamespace(
        name=lambda: name,
        start_ns=lambda: round(start * 1e3),
        duration_ns=lambda: round(us * 1e3),
        start_thread_id=lambda: thread,
        device_type=lambda: SimpleNamespace(name="CUDA" if gpu else "CPU"),
        device_resource_id=lambda: stream,
        correlation_id=lambda: correlation,
    )


NOBODY = 2**64 - 1
"""The thread of what CUPTI reports."""
RECORDING = [
    event("aten::add", 10.0, 5.0),  # before the call
    event(CALL, 100.0, 60.0),
    event("aten::item", 105.0, 30.0),
    event("aten::_local_scalar_dense", 106.0, 28.0),
    event("cudaMemcpyAsync", 107.0, 3.0, thread=NOBODY, correlation=5),
    event("cudaStreamSynchronize", 111.0, 20.0, thread=NOBODY),
    event("cudaEventQuery", 112.0, 1.0, thread=NOBODY),  # NCCL's watchdog
    event(f"{WAIT}all_reduce", 140.0, 12.0),
    event("cudaLaunchKernelExC", 142.0, 4.0, thread=NOBODY, correlation=6),
    event("cuLaunchKernelEx", 143.0, 2.0, thread=NOBODY),
    event("aten::other", 120.0, 2.0, thread=3),
    event(DRAIN, 161.0, 60.0),
    event("cudaDeviceSynchronize", 162.0, 58.0, thread=NOBODY),
    event("Memcpy DtoH (Device -> Pageable)", 113.0, 4.0, gpu=True, correlation=5),
    event(
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        150.0,
        40.0,
        gpu=True,
        correlation=6,
    ),
    event("void at::native::elementwise_kernel<128, 4>(int)", 200.0, 10.0, gpu=True, stream=9),
    event(CALL, 113.0, 97.0, gpu=True),  # the mark's shadow on the GPU
    event(f"{WAIT}all_reduce", 150.0, 40.0, gpu=True),
]


def test_a_recording_becomes_the_call_the_hosts_part_and_the_gpus_work() -> None:
    spans, left_out, off_us = gpu_spans(recorded(RECORDING), 90_000)
    assert (left_out, off_us) == (0, 0.0)
    found = [(span.kind, span.name.partition("(")[0].strip(), span.start_us, span.us) for span in spans]
    assert found == [
        ("call", "solution", 10.0, 121.0),
        ("host", CALL, 10.0, 60.0),
        ("op", "aten::item", 15.0, 30.0),
        ("launch", "cudaMemcpyAsync", 17.0, 3.0),
        ("sync", "cudaStreamSynchronize", 21.0, 20.0),
        ("copy", "Memcpy DtoH", 23.0, 4.0),
        ("op", "all_reduce", 50.0, 12.0),
        ("launch", "cudaLaunchKernelExC", 52.0, 4.0),
        ("wait", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 60.0, 40.0),
        ("kernel", "void at::native::elementwise_kernel<128, 4>", 110.0, 10.0),
    ]
    assert spans[-1].stream == 9


def test_clocks_that_differ_are_seen_in_work_before_its_launch_or_after_the_wait_for_it() -> None:
    early = [*RECORDING, event("kernel", 130.0, 3.0, gpu=True, correlation=6)]
    assert gpu_spans(recorded(early), 0)[2] == 12.0
    late = [*RECORDING, event("kernel", 155.0, 100.0, gpu=True)]
    assert gpu_spans(recorded(late), 0)[2] == 34.0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaDeviceSynchronize", "sync"),
        ("cudaEventSynchronize", "sync"),
        ("cudaMemcpy", "sync"),
        ("cuMemcpyDtoH_v2", "sync"),
        ("cuMemcpyDtoHAsync_v2", "launch"),
        ("cudaMemsetAsync", "launch"),
        ("cudaGraphLaunch", "launch"),
        ("cuLaunchKernel", "launch"),
        ("cudaEventRecord", None),
        ("custom::op", "op"),
    ],
)
def test_calls_of_cuda_queue_or_wait(name: str, kind: str | None) -> None:
    spans, _, _ = gpu_spans(
        recorded([event(CALL, 0.0, 50.0), event(name, 5.0, 5.0), event(DRAIN, 50.0, 5.0)]), 0
    )
    assert [span.kind for span in spans if span.kind not in ("call", "host")] == ([kind] if kind else [])


def test_more_spans_than_are_kept_lose_the_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.rank.profile_spans.MOST_SPANS", 7)
    many = []
    for at in range(3):
        begin = 1_000.0 * at
        many += [
            event(CALL, begin, 50.0),
            event("kernel", begin + 60.0, 5.0, gpu=True),
            event(DRAIN, begin + 50.0, 20.0),
        ]
    spans, left_out, _ = gpu_spans(recorded(many), 0)
    assert [span.kind for span in spans] == ["call", "host", "kernel"] * 2
    assert left_out == 2


def test_stamps_become_spans_of_their_blocks() -> None:
    noted = [
        (1_000_500, 1, 0),
        (1_000_000, 0, 0),
        (1_003_000, 0, 2),
        (1_002_000, 0, 1),
        (1_004_500, 1, 1),
        (9, 99, 0),
    ]
    spans = stamp_spans(noted, 500)
    assert [(span.name, span.start_us, span.us, span.stream) for span in spans] == [
        ("0 to 1", 1_000.5, 2.0, 0),
        ("1 to 2", 1_002.5, 1.0, 0),
        ("0 to 1", 1_001.0, 4.0, 1),
    ]
    many = stamp_spans([(at, block, 0) for block in range(40) for at in (1, 2)], 0)
    assert {span.stream for span in many} == set(range(16))
    inside = [Span("stamp", "0 to 1", 20.0, 2.0)]
    assert inside[0] in gpu_spans(recorded(RECORDING), 90_000, inside)[0]


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


def counted(seconds: float = 0.1, calls: int = 100, **shares: Any) -> Outside:
    """1000 µs a call. Bytes are those of the whole row."""
    given: dict[str, Any] = {"link_peak": 478e9, "dram_peak": 4917e9, "dram": 0.01, "sent": 0, "received": 0}
    return Outside(calls, seconds, [GpuCounted(**(given | shares))])


def test_figures_are_of_a_call() -> None:
    work: list[Work] = [
        ("kernel", "void at::gemm<float>(int)", 100.0, 300.0),
        ("copy", "Memcpy DtoD", 350.0, 100.0),  # on another stream, 50 of it beside the kernel
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
    work: list[Work] = [
        ("kernel", "k", 0.0, 900.0),
        ("stamp", "0 to 1", 10.0, 30.0),
        ("stamp", "0 to 1", 12.0, 50.0),
    ]
    found = gpu_ranks(WorldProfile([report(0, work)]), LEAST)
    assert found[0].stamps == {"0 to 1": 40.0}
    assert gpu_words.stamp_lines(found) == [
        "rank 0: between stamps, µs, the median of blocks and calls: 0 to 1 40.0"
    ]
    assert (found[0].busy_us, found[0].kernels) == (900.0, 1)
    timeline = median_call([report(0, work)])
    assert timeline is not None
    assert lane(timeline, 0, 10) == "░" * 9 + "·"
    events = json.loads(chrome_trace([report(0, work)]))["traceEvents"]
    assert "block 0: between stamps" in [
        each["args"]["name"] for each in events if each["name"] == "thread_name"
    ]


def test_busy_parts_join_what_overlaps() -> None:
    work = [Span("kernel", "a", 0.0, 10.0), Span("kernel", "b", 20.0, 5.0), Span("copy", "c", 8.0, 4.0)]
    assert busy_parts(work) == [(0.0, 12.0), (20.0, 25.0)]


def test_the_name_of_a_kernel_is_its_own() -> None:
    assert short_name("void at::native::(anonymous namespace)::fill<float, 4>(int, float*)") == "fill"
    assert short_name("nvjet_hsh_128x256") == "nvjet_hsh_128x256"


# --- sentences: each rule fires, and does not -----------------------------------------------------------------------


def tiny(count: int, us: float, every: float) -> list[Work]:
    return [("kernel", "void tiny<int>()", 20.0 + every * at, us) for at in range(count)]


def test_many_small_kernels_are_launch_bound_and_few_or_long_or_dense_ones_are_not() -> None:
    found = gpu_ranks(WorldProfile([report(0, tiny(200, 1.5, 4.5))]), LEAST)[0]
    assert found.diagnosis.startswith(
        "launch-bound: 200 kernels a call, each of 1.5 µs; gaps between them 70 %"
    )
    assert "CUDA graph" in found.advice
    assert not said(report(0, tiny(8, 1.5, 4.5)))[0].startswith("launch-bound")
    assert not said(report(0, tiny(30, 20.0, 30.0)))[0].startswith("launch-bound")
    assert not said(report(0, tiny(240, 4.0, 4.0)))[0].startswith("launch-bound")


def synced(gap: float) -> list[Work]:
    work: list[Work] = []
    for at in range(5):
        begin = 200.0 * at
        work += [
            ("kernel", f"k{at}", begin, 190.0 - gap),
            ("sync", "cudaStreamSynchronize", begin, 195.0 - gap),
        ]
    return work


def test_gaps_behind_synchronisations_are_host_bound_and_short_ones_are_not() -> None:
    found = gpu_ranks(WorldProfile([report(0, synced(100.0))]), LEAST)[0]
    assert found.diagnosis.startswith(
        "host-bound: 5 synchronisations a call, behind which the GPU idles 44 %"
    )
    assert ".item()" in found.advice
    assert not said(report(0, synced(5.0)))[0].startswith("host-bound")
    unsynced = [each for each in synced(100.0) if each[0] != "sync"]
    assert not said(report(0, unsynced))[0].startswith("host-bound")


def collective(start: float, us: float = 0.0) -> list[Work]:
    return [("wait", "ncclDevKernel_AllReduce", start, us or 950.0 - start)]


def test_a_collective_that_spins_names_the_rank_that_comes_late_and_one_that_works_is_an_exchange() -> None:
    late: list[Work] = [("kernel", "gemm", 20.0, 780.0), *collective(800.0)]
    found = gpu_ranks(WorldProfile([report(0, collective(50.0)), report(1, late)]), LEAST)
    assert found[0].diagnosis.startswith("waits for rank 1: its collectives spin 75 % of a call (750 µs)")
    assert "rank 1 comes late" in found[0].advice
    assert found[1].diagnosis.startswith("computes: gemm takes 78 %")
    both = said(report(0, collective(50.0)), report(1, collective(60.0)))
    assert [each.partition(":")[0] for each in both] == ["exchanges", "exchanges"]


def test_at_the_link_by_the_measured_peak_or_else_by_the_links_speed() -> None:
    row = counted(sent=round(100 * 350e6), received=0)  # 350 GB/s
    plain = report(0, [("kernel", "push", 0.0, 300.0)])
    least = msgspec.structs.replace(LEAST, sent=340e6, received=340e6)
    assert said(plain, outside=row, least=least)[0].startswith(
        "at the link: 350 GB/s over NVLink, 73 % of its peak (by the"
    )
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
    assert "NVLink" not in said(plain, outside=little)[0]  # twice the least, which takes no time


def test_at_hbm_and_more_through_it_than_must_be() -> None:
    plain = report(0, [("kernel", "copy", 0.0, 300.0)])
    busy = counted(dram=0.8)  # 3.9 GB in 1000 µs
    needed = msgspec.structs.replace(LEAST, local=3.8e9)
    assert said(plain, outside=busy, least=needed) == ["at HBM: 80 % of its bandwidth"]
    much = gpu_ranks(WorldProfile([plain], busy), msgspec.structs.replace(LEAST, local=0.7e9))[0]
    assert much.diagnosis == "at HBM: 80 % of its bandwidth; moves 5.6x the bytes that it must"
    assert much.advice.startswith("fuse passes")
    half = msgspec.structs.replace(LEAST, local=1.3e9)
    assert said(plain, outside=counted(dram=0.5), least=half) == [
        "moves 1.9x the bytes through HBM that it must (50 % of its bandwidth)"
    ]
    assert (
        "HBM"
        not in said(plain, outside=counted(dram=0.5), least=msgspec.structs.replace(LEAST, local=2.3e9))[0]
    )
    assert "HBM" not in said(plain, outside=counted(dram=0.1), least=half)[0]
    assert "HBM" not in said(plain, outside=counted(dram=None))[0]


def test_a_host_that_is_slow_to_launch_and_nothing_that_stands_out() -> None:
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
    assert gpu_words.unseen_lines(found, [blind]) == [
        "rank 0: torch's profiler did not start: RuntimeError: CUPTI"
    ]


# --- words, lanes, trace --------------------------------------------------------------------------------------------


def made(world: int = 2) -> Profiled:
    """The first rank waits for the others in a collective."""
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


def test_a_rank_on_a_gpu_has_two_lanes() -> None:
    timeline = median_call(made().reports)
    assert timeline is not None
    assert lane(timeline, 0, 20) == "·░░░░▒▒▒▒▒▒▒▒▒▒████·"
    assert {piece.sort for piece in timeline.host_lanes[0]} == {"code", "launch", "sync"}
    assert "idle" in timeline.words["code"]


def test_the_trace_has_rows_for_the_host_and_for_every_stream() -> None:
    spans = [
        Span("call", "solution", 0.0, 9.0),
        Span("host", CALL, 0.0, 4.0),
        Span("launch", "cudaLaunchKernel", 1.0, 1.0),
    ]
    spans += [
        Span("kernel", "\x1b[31mk", 2.0, 4.0, 7),
        Span("copy", "c", 3.0, 4.0, 13),
        Span("odd", "?", 1.0, 1.0),
    ]
    events = json.loads(chrome_trace([RankProfile(0, spans)]))["traceEvents"]
    rows = {each["name"]: each["tid"] for each in events if each["ph"] == "X"}
    names = {each["tid"]: each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert names[rows["c"]] == "GPU: stream 13"
    assert names[rows["cudaLaunchKernel"]].startswith("host: launches")
    assert len(set(rows.values())) == 5
    assert "?" not in rows
    assert "\x1b" not in "".join(rows)


def test_rows_line_up_below_their_heads_and_missing_figures_are_dashes() -> None:
    found = made().gpu_figures
    assert len(gpu_words.trusted_row(found[0])) == len(gpu_words.TRUSTED_HEAD)
    assert len(gpu_words.seen_row(found[0])) == len(gpu_words.SEEN_HEAD)
    assert "12.1 MB" in gpu_words.trusted_row(found[0])
    bare = GpuFigures(0, LEAST, unseen="why")
    assert gpu_words.trusted_row(bare).count(" -") == 8
    assert len(gpu_words.trusted_row(bare)) == len(gpu_words.TRUSTED_HEAD)
    assert diagnosis(bare)[0] == "what takes its time was not seen"
    lacking = [
        msgspec.structs.replace(bare, rank=rank, counted=GpuCounted(missing=["no bytes over NVLink: why"]))
        for rank in (0, 1)
    ]
    assert gpu_words.missing_lines(Outside(1, 1.0, missing=["nothing: x"]), lacking) == [
        "nothing: x",
        "ranks 0, 1: no bytes over NVLink: why",
    ]
    off = msgspec.structs.replace(found[0], clock_us=30.0)
    assert gpu_words.unseen_lines([off, found[1]], []) == [
        "rank 0: its GPU's timestamps are 30 µs off at the least"
    ]
    assert "did not come to their end" in gpu_words.row_words(None)


def test_a_profile_of_gpus_travels_whole_to_the_app() -> None:
    found = made()
    assert decode(encode_message(found)) == found


# --- calls in a row -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "calls"),
    [
        ([1e-3, 2e-3], 200),
        ([5.0], 1),
        ([0.0], MOST_CALLS),
        ([math.nan, -1.0], MOST_CALLS),
        ([math.inf], MOST_CALLS),
    ],
)
def test_whatever_ranks_say_a_row_ends(said: list[float], calls: int) -> None:
    assert calls_in_row(said) == calls


def test_a_rank_that_hangs_up_ends_the_row() -> None:
    ours, theirs = zip(*(socket.socketpair() for _ in range(2)), strict=True)
    theirs[0].sendall(SAID.pack(1e-3))

    def rank_1() -> None:
        theirs[1].sendall(SAID.pack(1e-3))
        assert TOLD.unpack(theirs[1].recv(TOLD.size)) == (400,)
        theirs[1].close()

    peer = threading.Thread(target=rank_1)
    peer.start()
    assert counted_row(ours, [RankGpu(0), RankGpu(1)], time.monotonic() + 30.0) is None
    peer.join()
    for end in (*ours, theirs[0]):
        end.close()


class PretendedGpus(Cpu):
    """CPU ranks that are looked at as if they had GPUs: torch's profiler then sees no work of a GPU."""

    on_gpus = True

    def gpus(self, world: int) -> tuple[RankGpu, ...]:
        return tuple(RankGpu(rank) for rank in range(world))


SETTING = Setting(
    problem_dir=str(HOME / "collective" / "allreduce"), preset="tiny", sizes={"M": 128, "N": 256}, world=2,
    device="cpu", dtype="float32",
)  # fmt: skip
ALL_REDUCE = """
import torch.distributed as dist
def solution(tensor):
    out = tensor.clone()
    dist.all_reduce(out)
    return out
"""


@pytest.mark.slow
def test_calls_in_a_row_are_counted_also_where_the_profiler_sees_nothing() -> None:
    found = profile_world(SETTING, "kernel.py", ALL_REDUCE, PretendedGpus(), choose())
    assert found.outside is not None
    assert found.outside.calls > 10
    assert 0.05 < found.outside.seconds < 20.0
    assert not any(each.failed for each in found.reports), found.reports
    assert all(each.unseen.startswith("torch's profiler saw no work of the GPU") for each in found.reports)
    ranks = gpu_ranks(found, LEAST)
    assert ranks[0].row_us == pytest.approx(found.outside.seconds / found.outside.calls * 1e6)


@pytest.mark.slow
def test_a_rank_that_fails_while_others_wait_for_it_is_told_soon() -> None:
    source = ALL_REDUCE.replace(
        "    out =",
        "    import time\n    if dist.get_rank() == 1: raise ValueError('no such thing')\n    time.sleep(600)\n    out =",
    )
    found = profile_world(SETTING, "kernel.py", source, PretendedGpus(), choose())
    assert found.outside is None
    assert "no such thing" in found.reports[1].failed
    assert "still at work" in found.reports[0].failed
    assert found.reports[1].failed_at < found.reports[0].failed_at


def told_nothing(_: Waits | Begins) -> None:
    """For tests that look at the end alone."""


@pytest.mark.slow
def test_a_kernel_that_dies_under_the_profiler_keeps_what_was_counted() -> None:
    source = ALL_REDUCE.replace(
        "    out =", "    import os, torch\n    if torch.autograd._profiler_enabled(): os._exit(9)\n    out ="
    )
    found = profile_world(SETTING, "kernel.py", source, PretendedGpus(), choose())
    assert found.outside is not None
    assert all(each.unseen.startswith("the rank sent no report of what it saw") for each in found.reports)
    assert profile_ranks(
        ProfileRequest(setting=SETTING, kernel_name="kernel.py", source=ALL_REDUCE), told_nothing
    ).figures
