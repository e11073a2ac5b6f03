"""From events of torch's profiler on a GPU to spans, with written recordings."""

from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.protocol.profile import Span
from sandbox.rank.profiling.spans import CALL, DRAIN, WAIT, cpp_events, gpu_spans, host_spans, recorded, stamp_spans


def event(
    name: str, start: float, us: float, *, gpu: bool = False, thread: int = 1, correlation: int = 0, stream: int = 7
) -> Any:
    """Returns an event with kineto's interface. Times in microseconds."""
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
"""The thread id of events that CUPTI reports."""
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
    event(CALL, 113.0, 97.0, gpu=True),  # the mark, repeated for the GPU
    event(f"{WAIT}all_reduce", 150.0, 40.0, gpu=True),
]


def test_recording_becomes_call_hosts_part_and_gpus_work() -> None:
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


def test_differing_clocks_show_in_impossible_spans() -> None:
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
    spans, _, _ = gpu_spans(recorded([event(CALL, 0.0, 50.0), event(name, 5.0, 5.0), event(DRAIN, 50.0, 5.0)]), 0)
    assert [span.kind for span in spans if span.kind not in ("call", "host")] == ([kind] if kind else [])


def test_more_spans_than_are_kept_lose_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.rank.profiling.spans.MOST_SPANS", 7)
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
    noted = [(1_000_500, 1, 0), (1_000_000, 0, 0), (1_003_000, 0, 2), (1_002_000, 0, 1), (1_004_500, 1, 1), (9, 99, 0)]
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


def test_call_of_cpp_is_named_between_its_waits() -> None:
    waits = [("px_barrier", 60_000, 90_000), ("px_wait", 10_000, 30_000), ("px_wait", 20_000, 40_000)]
    events = recorded([event(CALL, 0.0, 200.0)]) + cpp_events("add", 5_000, 100_000, waits, thread=1)
    spans, left_out = host_spans(sorted(events, key=lambda each: (each.start, -each.end)), 0)
    assert left_out == 0
    assert [(span.kind, span.name, span.start_us, span.us) for span in spans] == [
        ("call", "solution", 0.0, 200.0),
        ("op", "C++ add", 5.0, 5.0),
        ("wait", "px_wait", 10.0, 20.0),
        ("wait", "px_wait", 30.0, 10.0),
        ("op", "C++ add", 40.0, 20.0),
        ("wait", "px_barrier", 60.0, 30.0),
        ("op", "C++ add", 90.0, 10.0),
    ]
