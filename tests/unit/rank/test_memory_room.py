"""As many reference worlds run as fit into a device's memory; sizes that leave no room for one are refused."""

from types import SimpleNamespace

import pytest
import torch

from problems.setting import SizesRefused
from sandbox.memory import host, slots
from sandbox.rank import baseline_measurement as room
from sandbox.rank.devices.device import Device


def test_arenas_hold_as_many_slots_as_fit() -> None:
    assert room.arenas_bytes(10, inputs=2, outputs=1) == 3 * (2 * 2 + 3 * 1)
    assert room.arenas_bytes(10, inputs=20, outputs=1) == 2 * 20 + 3 * 1


EACH = int(room.FRAGMENTED * 8 * room.GIB) + room.CONTEXT_BYTES


def test_each_takes_call_and_context_beside_kernels_own() -> None:
    device = room.CONTEXTS_BYTES + room.HEAP_BYTES + 7 * room.GIB + 5 * room.GIB + (3 + 1) * EACH
    assert room.most_references(device, iterations=7 * room.GIB, call=8 * room.GIB, oracle=5 * room.GIB) == 3
    assert room.most_references(device - 1, iterations=7 * room.GIB, call=8 * room.GIB, oracle=5 * room.GIB) == 2


def test_memory_of_oracle_limits_all_but_first() -> None:
    device = room.CONTEXTS_BYTES + room.HEAP_BYTES + 5 * room.GIB + (3 + 1) * EACH
    assert room.most_references(device, iterations=0, call=8 * room.GIB, oracle=5 * room.GIB, other=5 * room.GIB) == 3
    assert room.most_references(device, iterations=0, call=8 * room.GIB, oracle=5 * room.GIB, other=16 * room.GIB) == 1
    assert room.most_references(device, iterations=0, call=8 * room.GIB, oracle=5 * room.GIB, other=90 * room.GIB) == 1


def test_comparison_holds_copies_and_references_of_size() -> None:
    assert room.comparing_bytes(outputs=1, at_once=100) == room.COMPARED * (1 + 5)
    assert room.comparing_bytes(outputs=50, at_once=100) == room.COMPARED * 50 + 5 * 100
    assert room.comparing_bytes(outputs=500, at_once=100) == room.COMPARED * 500 + 5 * 500


def test_sizes_without_room_are_refused_with_needs() -> None:
    device = room.CONTEXTS_BYTES + 40 * room.GIB + 2 * room.GIB
    assert room.most_references(device, iterations=40 * room.GIB, call=room.GIB, oracle=0) == 1
    with pytest.raises(SizesRefused, match=r"take 40\.0 GiB .* 1\.0 GiB in each .* 1\.0 GiB: 55 GiB .* has 54 GiB"):
        room.most_references(device, iterations=40 * room.GIB, call=room.GIB, oracle=room.GIB)


@pytest.mark.parametrize("varies", [False, True])
def test_slots_hold_twice_the_most_where_sizes_vary(varies: bool) -> None:
    code, device = SimpleNamespace(capacity=lambda _: None), Device()
    found = room.BaselineMeasurement(code, None, device, None)  # type: ignore[arg-type]
    found.in_sizes, found.out_sizes, found.seconds = (
        [1 << 14, 1 << 15 - varies],
        [1 << 20, 1 << 21 - varies],
        [2.0, 1.0],
    )
    found.in_sizes[0] <<= 1
    found.out_sizes[0] <<= 1
    found.shapes, found.leaves = [[(1, 2)], [(1, 2 + varies)]], 9
    told = found.result([1 << 30], 4, 1 << 28)
    assert told.in_bytes == ((1 << 16) + host.PAGE if varies else 1 << 15)
    assert told.out_bytes == host.up((1 << 21 + varies) + slots.header_bytes(18) + (1 << 20))
    assert (told.room, told.seconds, told.varies, told.references, told.arena_bytes) == (18, 1.0, varies, None, 1 << 30)


@pytest.mark.parametrize("shape", [(10**11, 256), (10**18, 256), (10**20, 2)])
def test_tensor_larger_than_memory_is_lack_of_memory(shape) -> None:
    with pytest.raises((RuntimeError, TypeError)) as raised:
        torch.randn(*shape, dtype=torch.bfloat16)
    assert room.lack_of_memory(raised.value)
    assert "\n" not in room.lack_of_memory(raised.value)


@pytest.mark.parametrize(
    ("fits", "limit", "found"),
    [([5], 100, 5), ([3, 9], 70, 9), ([3, 3, 2], 50, 2), ([None, None, 6], 50, 6), ([None] * 3, None, None)],
)
def test_first_arenas_with_enough_references_are_taken(fits, limit, found) -> None:
    device = Device()
    device.memory_bytes = lambda: 1 << 40  # type: ignore[method-assign]
    code = SimpleNamespace(capacity=lambda _: 1 << 12, problem=SimpleNamespace(mutates=[]))
    measured = room.BaselineMeasurement(code, None, device, None)  # type: ignore[arg-type]
    measured.in_sizes, measured.out_sizes, measured.seconds, measured.shapes = [64], [64], [1.0], [[]]
    answers = iter(fits)

    def references(there: int, arena_bytes: int, *sizes: int) -> int:
        assert (there, sizes) == (1 << 40, (64, (1 << 12) + slots.header_bytes(16) + host.PAGE, 7))
        if (answer := next(answers)) is None:
            raise SizesRefused("too large")
        return answer

    measured.references = references  # type: ignore[method-assign]
    if limit is None:
        with pytest.raises(SizesRefused):
            measured.result([100, 70, 50], 5, 7)
    else:
        told = measured.result([100, 70, 50], 5, 7)
        assert (told.references, told.arena_bytes) == (found, limit)


@pytest.mark.parametrize("mutates", [[], ["x"]])
def test_largest_peaks_count_in_room_for_references(monkeypatch: pytest.MonkeyPatch, mutates: list[str]) -> None:
    monkeypatch.setattr(room, "most_references", lambda *given: given)
    code = SimpleNamespace(problem=SimpleNamespace(mutates=mutates))
    measured = room.BaselineMeasurement(code, None, Device(), None)  # type: ignore[arg-type]
    measured.draw_peaks, measured.call_peaks, measured.oracle_peaks = [3, 90, 4], [5, 7, 6], [11, 13, 12]
    for outputs, other in ((1, 90), (60, room.comparing_bytes(60, 8))):
        copies = room.arenas_bytes(100, 10, outputs, bool(mutates)) + 2 * (10 + outputs)
        assert measured.references(500, 100, 10, outputs, 8) == (500, copies, 7, 13, other)
