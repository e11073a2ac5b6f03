"""Output slots: unpacking returns what was packed, and what a hostile rank writes is bounded."""

import gc
import os
import struct
import weakref
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from sandbox.memory import gpu, slots
from sandbox.memory.trees import NotATree, flatten, unflatten

ROOM = 16
SIZE = 64 << 10
LEAF = ("dtype", "dims", "device", "bytes", "shape")


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(3, 4),
        (torch.arange(5), [torch.ones(2, dtype=torch.bool)], {"b": torch.zeros(()), "a": torch.empty(0, 3)}),
        {"returned": torch.randn(2).bfloat16(), "written": {"grad0": torch.randn(2, 2)}},
        (1, 2.5, True, None, torch.randn(2, dtype=torch.complex64)),
        [],
        {"a" * (slots.TEXT - 8): torch.randn([1] * 8), "b": torch.randn(64, dtype=torch.float64)},
        torch.ones(SIZE - slots.header_bytes(ROOM), dtype=torch.uint8),  # fills the slot
    ],
)
def test_a_packed_output_is_read_back(value):
    memory = torch.full((SIZE,), slots.POISON, dtype=torch.uint8)
    structure, leaves = flatten(value)
    slots.Slot(memory, ROOM).pack(structure, leaves)
    got = slots.Unpacked(memory, ROOM)
    assert got.sound
    alone = slots.packed(structure, leaves)
    assert got.structure == alone.structure == structure
    assert all(map(torch.equal, got.tensors, alone.tensors))
    assert got.devices == [0] * len(leaves)
    for (_, put), out in zip(leaves, got.tensors, strict=True):
        assert out.dtype == put.dtype
        assert torch.equal(out, put)
    again, names = flatten(unflatten(structure, got.tensors))
    assert [name for name, _ in names] == [name for name, _ in leaves]
    assert again.replace("T", "") == structure.replace("T", "").replace("int", "").replace("float", "").replace(
        "bool", ""
    )


TREES = [
    torch.randn(3, 4),
    (torch.arange(5), [torch.ones(2, dtype=torch.bool), None], {"b": torch.zeros(()), "a": torch.empty(0, 3)}),
    {"returned": None, "written": {"grad0": torch.randn(2, 2)}},
    (torch.randn(2), 3),
]


def ready_for(value):
    """Returns (memory, a slot in it that is laid out for such values)."""
    memory = torch.full((SIZE,), slots.POISON, dtype=torch.uint8)
    outline = slots.Outline(*flatten(value), ROOM, SIZE)
    slot = slots.Slot(memory, ROOM)
    slot.lay_out(outline)
    slots.write_headers(memory, SIZE, 0, 1, outline)
    return memory, slot


def test_output_of_another_shape_neither_waits_nor_walks(monkeypatch):
    memory, slot = ready_for((torch.randn(2), torch.randn(3)))
    result, copy, waits = (torch.randn(4), torch.randn(3)), torch.Tensor.copy_, []
    monkeypatch.setattr(
        torch.Tensor, "copy_", lambda *a, non_blocking=False: (waits.append(not non_blocking), copy(*a))[1]
    )
    monkeypatch.delattr(slots, "flatten")  # it would take as long as many launches
    slot.put(result)
    assert waits == [False]
    assert torch.equal(slots.Unpacked(memory, ROOM).tensors[0], result[0])


@pytest.mark.parametrize("first", TREES)
@pytest.mark.parametrize(
    "then", [*TREES, torch.randn(4, 3).t(), torch.randn(2, 3, 4), (torch.randn(2), torch.tensor(3))]
)
def test_slot_laid_out_for_one_value_takes_any(first, then):
    memory, slot = ready_for(first)
    structure, leaves = flatten(then)
    expected = [tensor.clone() for _, tensor in leaves]
    slot.put(then)
    got = slots.Unpacked(memory, ROOM)
    assert got.sound
    assert got.structure == structure
    assert all(map(torch.equal, got.tensors, expected))


@pytest.mark.parametrize("laid_out_for", [torch.zeros(3, 4), torch.zeros(4, 3).t()])
@pytest.mark.parametrize(
    "value",
    [
        *(torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(3, 8)[:, ::2]),
        *(torch.randn(3, 8)[:1, :4], torch.randn(3, 8)[:0, ::2], torch.randn(3, 8)[:1, ::2]),
    ],
)
def test_strides_are_noted_as_they_were_returned(laid_out_for, value):
    memory, slot = ready_for(laid_out_for)
    slot.put(value)
    got = slots.Unpacked(memory, ROOM)
    assert got.strides == [list(value.stride())]
    assert got.is_dense(0) == value.is_contiguous()
    # One launch copies many contiguous tensors to targets of the same strides.
    assert slot.targets[0].stride() == (value if got.is_dense(0) else value.contiguous()).stride()


@pytest.mark.parametrize("value", [torch._neg_view(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(3, 4))])
def test_a_tensor_is_stored_as_it_reads(value):
    memory, slot = ready_for(torch.randn(3, 4))
    slot.put(value)
    assert torch.equal(slots.Unpacked(memory, ROOM).tensors[0], value)


@pytest.mark.parametrize("laid_out_for", [torch.zeros(4, 4), torch.zeros(2)])
def test_a_result_in_an_arena_is_refused(laid_out_for):
    arena = torch.zeros(2 * SIZE, dtype=torch.uint8)
    argument = slots.view(arena, SIZE, (4, 4), torch.float32)
    _, slot = ready_for(laid_out_for)
    slot.put(argument)
    slot.refuse_inputs(arena)
    slot.put(argument.clone())
    for result in (argument, argument[2:], slots.view(arena, 0, (4, 4), torch.float32)):
        with pytest.raises(slots.DoesNotFit, match="an argument"):
            slot.put(result)
    if laid_out_for.shape == argument.shape:
        with pytest.raises(slots.DoesNotFit, match="an argument"):
            slot.tensors_of(argument)
    with pytest.raises(slots.DoesNotFit, match="memory of outputs"):
        slot.put(slot.targets[0][:2])


def test_arena_mapped_again_on_a_gpu_is_refused(monkeypatch):
    _, slot = ready_for(torch.zeros(0))
    slot._refused = [(1 << 40, 1 << 41, "an argument")]
    found, asked = {1 << 40: 7, 1 << 42: 7, 1 << 43: 8}, []
    monkeypatch.setattr(gpu, "allocation", lambda address: asked.append(address) or found.get(address))
    monkeypatch.setattr(slots, "_checked_granules", set())
    own, beside, second = (
        SimpleNamespace(is_cuda=True, data_ptr=lambda at=at: at) for at in (1 << 43, (1 << 43) + 512, 1 << 42)
    )
    with monkeypatch.context() as patch:
        patch.setattr(gpu, "allocation", lambda address: 0)  # of other memory
        slot._refuse_arenas([SimpleNamespace(is_cuda=True, data_ptr=lambda: 1 << 44)])
    with monkeypatch.context() as patch:
        patch.setattr(slots, "_drawn", lambda: slots.CHECKED_AGAIN)
        slot._refuse_arenas([own, own, beside])
    assert asked == [1 << 43, 1 << 40]  # the driver is asked once for a granule
    with pytest.raises(slots.DoesNotFit, match="an argument"):
        slot._refuse_arenas([second])
    found[1 << 43] = 7  # mapped there later
    with pytest.raises(slots.DoesNotFit, match="an argument"):
        slot._refuse_arenas([own] * 1000)


def test_an_empty_result_lies_nowhere():
    arena = torch.zeros(SIZE, dtype=torch.uint8)
    _, slot = ready_for(torch.zeros(0))
    slot.refuse_inputs(arena)
    slot.put(arena[:0].view(torch.float32))


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(1 << 20),
        torch.zeros(SIZE // 4),
        [torch.zeros(1)] * 40,
        torch.zeros(2, 2).to_sparse(),
        torch.zeros(2, device="meta"),
        torch.zeros(1).expand([1] * 9),
        {"a" * (slots.TEXT - 3): torch.zeros(1)},
    ],
)
def test_what_does_not_fit_is_refused(value):
    with pytest.raises(slots.DoesNotFit):
        slots.Slot(torch.zeros(SIZE, dtype=torch.uint8), ROOM).pack(*flatten(value))


@pytest.mark.parametrize(
    "value", ["text", {1: torch.zeros(1), "a": 1}, torch.nn.Linear(1, 1), object(), {torch.zeros(1)}]
)
def test_only_plain_trees_count(value):
    for like in (3, torch.zeros(1)):
        with pytest.raises(NotATree):
            ready_for(like)[1].put(value)
    with pytest.raises(NotATree, match=r"^a \w+; a result"):
        flatten(value)


def test_a_subclass_of_tensor_is_not_a_tensor():
    class Lazy(torch.Tensor):
        pass

    with pytest.raises(NotATree, match=r"Lazy as element a\.0;"):
        flatten({"a": [torch.zeros(1).as_subclass(Lazy)]})


def test_poison_is_not_an_output():
    found = slots.Unpacked(torch.full((SIZE,), slots.POISON, dtype=torch.uint8), ROOM)
    assert (found.written, found.structure) == (False, "")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("written", 0), ("count", ROOM + 1), ("length", 1025), ("dtype", 14), ("dims", 9), ("bytes", 17)),
        *(("shape", 1 << 41), ("shape", -1), ("shape", 1 << 20)),
    ],
)
def test_a_header_that_lies_is_unsound(field, value):
    memory, slot = ready_for(torch.zeros(4))
    slot.put(torch.zeros(4))
    assert slots.Unpacked(memory, ROOM).sound
    head = dict(zip(("written", "count", "length"), struct.unpack_from("<QII", memory.numpy()), strict=True))
    leaf = dict(zip(LEAF, slots._LEAF.unpack_from(memory.numpy(), slots.FIRST_LEAF), strict=False))
    (head if field in head else leaf)[field] = value
    if value == 1 << 20:  # more than the slot has
        leaf["bytes"] = 4 << 20
    struct.pack_into("<QII", memory.numpy(), 0, *head.values())
    slots._LEAF.pack_into(memory.numpy(), slots.FIRST_LEAF, *leaf.values(), *[0] * (2 * slots.MAX_DIMS - 1))
    assert not slots.Unpacked(memory, ROOM).sound


def test_headers_are_written_to_their_slots_alone():
    memory = torch.full((4 * SIZE,), slots.POISON, dtype=torch.uint8)
    outline = slots.Outline("T", [("out", torch.zeros(3, device="meta"))], ROOM, SIZE)
    slots.write_headers(memory, SIZE, 1, 2, outline)
    found = [slots.Unpacked(part, ROOM) for part in memory.view(4, SIZE)]
    assert [each.devices for each in found] == [[], [1], [1], []]
    assert slots.overwritten(memory, SIZE, slots.header_bytes(ROOM)) == [False] * 4


LIKE = {"a": [torch.zeros(3, 4), None], "b": (torch.zeros(2),)}


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"a": [torch.ones(3, 4, requires_grad=True), None]}, True),
        ({"a": [torch.zeros(4, 3).t(), None]}, False),
        ({"a": [torch.zeros(3, 4).double(), None]}, False),
        ({"a": [torch.zeros(3, 5), None]}, False),
        ({"a": [torch.zeros(3, 4, device="meta"), None]}, False),
        ({"a": [torch.zeros(3, 4), 1]}, False),
        ({"a": [torch.zeros(3, 4)]}, False),
        ({"a": (torch.zeros(3, 4), None)}, False),
        ({"b": (torch.nn.Parameter(torch.zeros(2)),)}, False),
        ({"b": (torch.zeros(1),)}, False),
        ({"c": None}, False),
    ],
)
def test_only_expected_results_need_no_layout(change, fits):
    _, slot = ready_for(LIKE)
    assert (slot.tensors_of(LIKE | change) is not None) == fits
    assert slot.tensors_of({"a": LIKE["a"], "c": LIKE["b"]}) is None
    assert [len(tensor) for tensor in slot.tensors_of(dict(reversed(LIKE.items())))] == [3, 2]
    assert [name for name, _ in flatten(LIKE)[1]] == ["a.0", "b.0"]
    if fits:
        slot.put(LIKE | change)
        assert not any(target.requires_grad for target in slot.targets)


def test_input_slots_keep_tensors_apart():
    tensors = {"a": torch.randn(300), "b": torch.arange(7), "c": torch.empty(0, 2)}
    assert slots.lay_out({"c": tensors["c"]})[1] == 64  # an arena needs memory
    table, size = slots.lay_out(tensors)
    memory = torch.frombuffer(bytearray(os.urandom(2 * size)), dtype=torch.uint8)
    views = slots.read_inputs(memory, size, table)
    assert views["b"].data_ptr() == memory.data_ptr() + size + table[1].offset
    assert [place.offset for place in table] == [0, 1216, 1280]
    assert {type(place.shape) for place in table} == {tuple}  # messages hold no torch.Size
    for name, tensor in tensors.items():
        views[name].copy_(tensor)
    for name, view in slots.read_inputs(memory, size, table).items():
        assert torch.equal(view, tensors[name])


@pytest.mark.parametrize("at", [0, 7, 8, SIZE // 2 + 3, SIZE - 1])
@pytest.mark.parametrize("byte", [0x00, 0xA4, 0xA6, 0xFF])
def test_one_changed_byte_is_seen_in_the_poison(at, byte):
    memory = torch.full((SIZE,), slots.POISON, dtype=torch.uint8)
    assert slots.is_poisoned(memory)
    memory[at] = byte
    assert not slots.is_poisoned(memory)


@pytest.mark.parametrize(("at", "seen"), [(0, None), (63, None), (64, 0), (4095, 0), (4096, None), (SIZE - 1, 15)])
def test_slot_is_overwritten_when_bytes_behind_header_are(at, seen):
    memory = torch.full((SIZE,), slots.POISON, dtype=torch.uint8)
    memory[at] = 0
    assert slots.overwritten(memory, 4096, 64) == [slot == seen for slot in range(SIZE // 4096)]


def test_memory_is_free_without_a_collection_of_garbage():
    gc.disable()
    try:
        value = (torch.zeros(3), {"a": [torch.zeros(2), None, 4]})
        structure, leaves = flatten(value)
        again = unflatten(structure, [tensor for _, tensor in leaves])
        storages = [weakref.ref(tensor.untyped_storage()) for _, tensor in leaves]
        held = [weakref.ref(tensor) for _, tensor in leaves]
        assert all(reference() is not None for reference in held)
        del value, leaves, again
        assert [reference() for reference in held] == [None] * 3
        assert [reference() for reference in storages] == [None] * 3
    finally:
        gc.enable()


def test_numbers_are_on_cpu_whatever_default_device():
    with torch.device("meta"):
        leaves = flatten((1, 2.5, torch.Size((3, 4))))[1]
    assert {tensor.device.type for _, tensor in leaves} == {"cpu"}


def test_trees_have_names_types_and_one_order():
    number, (truth, pair) = flatten(2.5), ([True, 1], NamedTuple("Pair", [("a", Any), ("b", Any)])(torch.ones(1), None))
    assert [(name, tensor.dtype) for name, tensor in number[1]] == [("out", torch.float64)]
    assert flatten(torch.ones(1))[1] == [("out", torch.ones(1))]
    assert [tensor.dtype for _, tensor in flatten(truth)[1]] == [torch.bool, torch.int64]
    assert flatten(pair)[0] == "(T,None)"
    assert flatten(dict(reversed(LIKE.items())))[0] == flatten(LIKE)[0]


def test_extents_are_bounded_also_of_nothing():
    memory, slot = ready_for(torch.zeros(1))
    for extent, sound in (((1 << 40) - 1, True), (1 << 40, False)):
        slot.put(torch.empty(extent, 0))
        assert slots.Unpacked(memory, ROOM).sound is sound


def test_bytes_of_elements_are_compared_in_order():
    assert slots.raw_bytes(torch.arange(6, dtype=torch.uint8).view(2, 3).t()).tolist() == [0, 3, 1, 4, 2, 5]
    one, other = torch.tensor([0.0, torch.nan]), torch.tensor([-0.0, torch.nan])
    assert (slots.same_bits(one, one.clone()), slots.same_bits(one, other)) == (True, False)


def test_same_outputs_were_written_and_are_equal():
    mine = torch.full((2, 64), slots.POISON, dtype=torch.uint8)
    for words, changed, same in ((0, 0, False), (1, 0, False), (2, 0, True), (2, 1, False)):
        mine.view(torch.int64)[:words, 0] = slots.WRITTEN
        its = mine.clone()
        its[1, 63] += changed
        assert slots.same_outputs(mine, its) is same
