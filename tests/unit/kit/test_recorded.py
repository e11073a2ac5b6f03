"""Recorded calls: a driver that records what it gets stands in for the GPU's, and two captures for two calls of a function."""

import ctypes
import gc
import struct
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sandbox.kit import cuda, recorded
from sandbox.kit.errors import KernelError
from sandbox.kit.recorded import Captured, Node, Recording

A, B, C = 0x700000000000, 0x710000000000, 0x720000000000
IMPORTED = 0x7F0000000000
"""Memory that the driver puts into no copy of a graph."""
HERE, EXECUTION = 7, 77
"""The caller's stream, and the executable graph."""


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """What the driver got, in order: (name, arguments...)."""
    found: list[tuple[Any, ...]] = []
    pointer, word = ctypes.c_void_p, ctypes.c_uint64

    def standing_in(name: str, *types: Any) -> Any:
        return ctypes.CFUNCTYPE(ctypes.c_int, *types)(lambda *given: found.append((name, *given)) or 0)

    def words_in(table: int) -> list[int]:
        return [word.from_address(at).value for at in (pointer * 3).from_address(table)]

    def launch(configuration: int, kernel: int, given: int, packed: int) -> int:
        (stream,) = struct.unpack_from("<Q", ctypes.string_at(configuration, 56), 32)
        found.append(("launch", kernel, stream, words_in(given)))
        return 0

    def set_launch(execution: int, node: int, given: int) -> int:
        found.append(("set", node, words_in(word.from_address(given + 40).value)))
        return 0

    def copy_rows(given: int, stream: int) -> int:
        words = (word * 25).from_address(given)
        found.append(("copy", words[17], words[6], stream))
        return 0

    def set_copy(execution: int, node: int, given: int, context: int) -> int:
        words = (word * 25).from_address(given)
        found.append(("set", node, [words[17], words[6]]))
        return int(words[6] >= IMPORTED)

    def made(values: dict[str, int]) -> Callable[..., None]:
        def call(name: str, out: Any, *_: Any) -> None:
            out._obj.value = values[name]

        return call

    driver = SimpleNamespace(
        cuStreamWaitEvent=standing_in("wait", pointer, pointer, ctypes.c_uint32),
        cuEventRecord=standing_in("record", pointer, pointer),
        cuLaunchKernelEx=ctypes.CFUNCTYPE(ctypes.c_int, *[pointer] * 4)(launch),
        cuMemcpyAsync=standing_in("copy", *[ctypes.c_uint64] * 3, pointer),
        cuMemcpy3DAsync_v2=ctypes.CFUNCTYPE(ctypes.c_int, *[pointer] * 2)(copy_rows),
        cuGraphExecKernelNodeSetParams_v2=ctypes.CFUNCTYPE(ctypes.c_int, *[pointer] * 3)(set_launch),
        cuGraphExecMemcpyNodeSetParams=ctypes.CFUNCTYPE(ctypes.c_int, *[pointer] * 4)(set_copy),
        cuGraphLaunch=standing_in("graph", pointer, pointer),
        cuGraphExecDestroy=lambda graph: 0,
    )
    events = iter(range(100, 200))
    monkeypatch.setattr(recorded, "driver", lambda: driver)
    monkeypatch.setattr(recorded, "call", made({"cuGraphInstantiateWithFlags": EXECUTION, "cuCtxGetCurrent": 3}))
    monkeypatch.setattr(recorded, "_event", lambda owner: next(events))
    monkeypatch.setattr(recorded, "_stream", lambda lane: SimpleNamespace(cuda_stream=1000 + lane))
    monkeypatch.setattr(cuda, "own_kernels", {"own"})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: HERE, raising=False)
    recorded._address.cache_clear()
    yield found
    recorded._address.cache_clear()


def launch(*words: int, before: tuple[int, ...] = (), name: str = "own") -> Node:
    fixed = (5, 0, (1, 1, 1, 32, 1, 1, 0), ((0, 8), (8, 8), (16, 8)), 24, ())
    return Node(recorded.KERNEL, 41, fixed, words, name, before)


def copy(to: int, source: int, before: tuple[int, ...] = (), rows: int = 1) -> Node:
    words = [0] * 25
    words[17], words[6], words[22], words[23], words[24] = to, source, 512, rows, 1
    return Node(recorded.COPY, 42, (), tuple(words), "Memcpy", before)


def captured(make: Callable[..., list[Node]], *addresses: int) -> Captured:
    ranges = [(address, address + 4096, number) for number, address in enumerate(addresses)]
    graph = SimpleNamespace(raw_cuda_graph=lambda: 1)
    return Captured(graph, make(*addresses), list(addresses), ranges)


def both(a: int, b: int) -> list[Node]:
    return [launch(a, b + 64, 9), copy(b, a + 8, (0,))]


def rows(a: int, b: int) -> list[Node]:
    return [launch(a, b + 64, 9), copy(b, a + 8, (0,), rows=2)]


def test_a_graph_gets_addresses_that_have_moved(queued):
    recording = Recording(captured(both, A, B))
    assert recording.issue([A, B])
    assert not recording.compare(captured(both, C, A))
    assert recording.issue([B, C + 256])
    assert recording.issue([B, C + 256])
    launched = ("graph", EXECUTION, HERE)
    moved = [("set", 41, [B, C + 320, 9]), ("set", 42, [C + 256, B + 8])]
    assert queued == [launched, *moved, launched, launched]


def test_copied_rows_are_issued_with_moved_addresses(queued):
    recording = Recording(captured(rows, A, B))
    assert recording.issue([A, B])
    assert not recording.compare(captured(rows, C, A))
    assert recording.issue([B, C + 256])
    assert queued[-2:] == [("launch", 5, HERE, [B, C + 320, 9]), ("copy", C + 256, B + 8, HERE)]


def test_a_refused_copy_is_issued_in_turn(queued):
    recording = Recording(captured(both, A, B))
    assert not recording.compare(captured(both, C, A))
    for source in (IMPORTED, C):
        assert recording.issue([source, B])
        assert queued[-2:] == [("launch", 5, HERE, [source, B + 64, 9]), ("copy", B, source + 8, 512, HERE)]
    assert not [name for name, *_ in queued if name == "graph"]


@pytest.mark.parametrize("make", [both, rows])
def test_only_compared_arguments_may_move(queued, make):
    recording = Recording(captured(make, A, B))
    assert not recording.issue([C, B])
    assert not recording.compare(captured(make, C, B))
    assert recording.issue([A + 4096, B])
    done = len(queued)
    assert not recording.issue([A, B + 4096])
    assert len(queued) == done


def test_an_epoch_is_refused(queued):
    recording = Recording(captured(lambda a: [launch(a, 1, 0)], A))
    assert "own are 0x1 in one call and 0x2" in recording.compare(captured(lambda a: [launch(a, 2, 0)], A))


def test_a_number_like_an_address_stays(queued):
    recording = Recording(captured(lambda a: [launch(a, A + 8, 0)], A))
    assert not recording.compare(captured(lambda a: [launch(a, A + 8, 0)], B))
    recording.issue([C])
    assert queued[0] == ("set", 41, [C, A + 8, 0])


def test_unset_bytes_of_libraries_may_differ(queued):
    def made(padding: int) -> Callable[[int], list[Node]]:
        return lambda a: [launch(a, padding, 0, name="library")]

    recording = Recording(captured(made(3), A))
    assert not recording.compare(captured(made(4), A))
    assert not recording.compare(captured(made(5), B))
    hidden = Recording(captured(made(3), A))
    assert "0x3 in one call and 0x5" in hidden.compare(captured(made(5), B))


def test_chains_wait_for_what_they_need(queued):
    def made(a: int, b: int) -> list[Node]:
        first = launch(a, 0, 0), copy(b, a, (0,), rows=2)
        return [*first, launch(b, 1, 0, before=(0,)), copy(b + 8, a, (1, 2), rows=2)]

    Recording(captured(made, A, B)).issue([A, B])
    side = 1001  # the copies' stream
    assert [each[:1] + each[-1:] for each in queued if each[0] in ("launch", "copy")] == [
        ("launch", [A, 0, 0]), ("copy", side), ("launch", [B, 1, 0]), ("copy", side),
    ]  # fmt: skip
    events = [each for each in queued if each[0] in ("wait", "record")]
    first, second, last = (each[1] for each in events if each[0] == "record")
    assert [each[1:3] for each in events if each[0] == "wait"] == [(side, first), (side, second), (HERE, last)]


def test_a_cpu_rank_runs_the_function_each_time():
    calls = []
    double = recorded.recorded(lambda x, y: calls.append(y.copy_(2 * x)))
    for value in (1.0, 2.0):
        double(torch.full((2,), value), y := torch.zeros(2))
        assert y.tolist() == [2 * value] * 2
    assert len(calls) == 2


def test_a_recorded_function_returns_nothing():
    with pytest.raises(KernelError, match="must return nothing"):
        recorded.recorded(lambda x: x)(torch.zeros(1))  # type: ignore[arg-type, return-value]


def test_nothing_is_collected_during_a_capture(monkeypatch):
    def ended() -> None:
        raise RuntimeError("a previous error")

    graph, collects = SimpleNamespace(capture_begin=lambda *given, **named: None, capture_end=ended), []
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda keep_graph: graph)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(recorded, "_place", lambda: (None, None, None))
    with pytest.raises(KernelError, match="a previous error"):
        recorded.capture(lambda: collects.append(gc.isenabled()), [])
    assert collects == [False]
    assert gc.isenabled()
