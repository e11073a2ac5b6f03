"""Converts events of torch's profiler to spans of the calling thread and of its GPU."""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sandbox.protocol.profile import MOST_SPANS, NAME_CHARACTERS, Span

WAIT, CALL, DRAIN = "pkb.wait:", "pkb.call", "pkb.drain"
"""Marks in the recording: a collective, a call of solution, and the wait for the GPU after a call."""
_RUNTIME = re.compile(r"cu(da)?[A-Z]")
"""Names of calls of the CUDA runtime and driver."""
_SYNC = re.compile(r"Synchronize|^cu(da)?(Memcpy|Memset)(?!\w*(Async|Batch))")
_LAUNCH = re.compile(r"Launch|^cu(da)?(Memcpy|Memset)\w*Async")
MOST_BLOCKS = 16
"""Most blocks of a kernel whose stamps are shown."""
_KIT_WAITS = ("px_device_barrier", "px_device_wait")
"""Kernels of the kit that wait for other ranks."""


class Recorded(NamedTuple):
    """One event of torch's profiler. Nanoseconds on the host's clock."""

    start: int
    end: int
    name: str
    thread: int
    on_gpu: bool
    stream: int
    correlation: int
    """Connects a launch with its work; 0: none."""


def recorded(events: Iterable[Any]) -> list[Recorded]:
    """kineto's events in order of their begin, the longest first if they begin together."""
    found = []
    for event in events:
        start, on_gpu = event.start_ns(), event.device_type().name == "CUDA"
        found.append(
            Recorded(
                start,
                start + event.duration_ns(),
                event.name(),
                event.start_thread_id(),
                on_gpu,
                event.device_resource_id() if on_gpu else 0,
                event.correlation_id(),
            )
        )
    return sorted(found, key=lambda each: (each.start, -each.end))


def cpp_events(
    name: str, begin: int, end: int, waits: Sequence[tuple[str, int, int]], thread: int = 0
) -> list[Recorded]:
    """A call of compiled C++ as events: its waits for other ranks, and between them what it computes."""
    found: list[Recorded] = []
    for kind, *at in sorted(waits, key=lambda wait: wait[1]):
        start, stop = max(at[0], begin), min(at[1], end)
        if start > begin:
            found.append(Recorded(begin, start, f"C++ {name}", thread, False, 0, 0))
        if stop > start:
            found.append(Recorded(start, stop, f"{WAIT}{kind}", thread, False, 0, 0))
            begin = stop
    return [*found, Recorded(begin, end, f"C++ {name}", thread, False, 0, 0)]


def host_spans(events: Sequence[Recorded], epoch_ns: int) -> tuple[list[Span], int]:
    """The outermost spans of the calling thread (calls, waits, operations), and the number of spans left out."""
    calling = {event.thread for event in events if event.name == CALL}
    spans: list[Span] = []
    inside_call = inside = 0
    for event in events:
        if event.thread not in calling:
            continue
        if event.name == CALL:
            kind, inside_call = "call", event.end
        elif event.start >= inside_call or event.start < inside:
            continue
        else:
            kind, inside = ("wait" if event.name.startswith(WAIT) else "op"), event.end
        spans.append(_span(kind, event, epoch_ns))
    return _kept(spans)


def gpu_spans(events: Sequence[Recorded], epoch_ns: int, noted: Sequence[Span] = ()) -> tuple[list[Span], int, float]:
    """The spans of a rank on a GPU: calls, the GPU's work, and launches, waits and operations of the host.

    noted: spans of stamps to be added. Returns (spans, number of spans left out, lower bound of the error of the GPU's
    timestamps in microseconds). Without spans of the GPU's work, the profiler recorded none.
    """
    on_host = [event for event in events if not event.on_gpu]
    names = {event.name for event in on_host}
    # A mark of the host has its own event on the GPU, around the work that it launched.
    on_gpu = [event for event in events if event.on_gpu and event.name not in names]
    drains = [event for event in on_host if event.name == DRAIN]
    spans: list[Span] = [*noted]
    for call in (event for event in on_host if event.name == CALL):
        drained = next((drain.end for drain in drains if drain.start >= call.start), call.end)
        spans.append(_span("call", call._replace(end=drained), epoch_ns))
        spans.append(_span("host", call, epoch_ns))
        spans += [_span(kind, event, epoch_ns) for kind, event in _of_host(on_host, call)]
        work = (event for event in on_gpu if call.start <= event.start < drained)
        spans += [_span(_work_kind(event.name), event, epoch_ns) for event in work]
    spans.sort(key=lambda span: (span.start_us, span.kind != "call"))
    return *_kept(spans), _off_us(on_host, on_gpu, drains)


def stamp_spans(stamps: Iterable[tuple[int, int, int]], to_epoch_ns: int) -> list[Span]:
    """Spans between neighbouring stamps of the first blocks. stamps: of one call, (ns on the GPU, block, number)."""
    by_block: dict[int, list[tuple[int, int]]] = {}
    for ns, block, number in stamps:
        by_block.setdefault(block, []).append((ns, number))
    return [
        Span("stamp", f"{before} to {after}", (start + to_epoch_ns) / 1e3, (end - start) / 1e3, block)
        for block in sorted(by_block)[:MOST_BLOCKS]
        for (start, before), (end, after) in itertools.pairwise(sorted(by_block[block]))
    ]


def _of_host(on_host: Sequence[Recorded], call: Recorded) -> list[tuple[str, Recorded]]:
    """The host's events in a call: CUDA calls that queue or wait on any thread, and outermost operations on its own."""
    found: list[tuple[str, Recorded]] = []
    inside_op = inside_cuda = 0
    for event in on_host:
        if not call.start <= event.start < call.end or event.name in (CALL, DRAIN):
            continue
        if _RUNTIME.match(event.name):
            kind = "sync" if _SYNC.search(event.name) else "launch" if _LAUNCH.search(event.name) else ""
            if kind and event.start >= inside_cuda:  # calls of the driver within the runtime do not count twice
                inside_cuda = event.end
                found.append((kind, event))
        elif event.thread == call.thread and event.start >= inside_op:
            inside_op = event.end
            found.append(("op", event))
    return found


def _work_kind(name: str) -> str:
    if name.startswith(("Memcpy", "Memset")):
        return "copy"
    return "wait" if "nccl" in name.lower() or name.startswith(_KIT_WAITS) else "kernel"


def _off_us(on_host: Sequence[Recorded], on_gpu: Sequence[Recorded], drains: Sequence[Recorded]) -> float:
    """Lower bound of the error of timestamps in microseconds: work begins after its launch and ends before the wait for it."""
    launches = {event.correlation: event.start for event in on_host if _RUNTIME.match(event.name)}
    early = [launches[work.correlation] - work.start for work in on_gpu if work.correlation in launches]
    late = [work.end - drain.end for drain in drains for work in on_gpu if work.start < drain.start < work.end]
    return max([0, *early, *late]) / 1e3


def _kept(spans: list[Span]) -> tuple[list[Span], int]:
    left_out = max(0, len(spans) - MOST_SPANS)
    kept = spans[:MOST_SPANS]
    calls = [at for at, span in enumerate(kept) if span.kind == "call"]
    if left_out and len(calls) > 1:
        del kept[calls[-1] :]  # a partial call would look as if it had little work
    return kept, left_out


def _span(kind: str, event: Recorded, epoch_ns: int) -> Span:
    name = "solution" if kind == "call" else event.name.removeprefix(WAIT)[:NAME_CHARACTERS]
    start, us = (event.start - epoch_ns) / 1e3, (event.end - event.start) / 1e3
    return Span(kind, name, start, us, event.stream)
