"""Output slots: unpacking returns what was packed, and what a hostile rank writes is bounded."""

import os
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.memory import slots
from sandbox.memory.trees import NotATree, flatten, unflatten

ROOM = 16
SIZE = 64 << 10


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(3, 4),
        (torch.arange(5), [torch.ones(2, dtype=torch.bool)], {"b": torch.zeros(()), "a": torch.empty(0, 3)}),
        {"returned": torch.randn(2).bfloat16(), "written": {"grad0": torch.randn(2, 2)}},
        (1, 2.5, True, None, torch.randn(2, dtype=torch.complex64)),
        [],
    ],
)
def test_a_packed_output_is_read_back(value):
    memory = torch.full((SIZE,), slots.POISON, dtype=torch.uint8)
    structure, leaves = flatten(value)
    slots.Slot(memory, ROOM).pack(structure, leaves)
    got = slots.Unpacked(memory, ROOM)
    assert got.sound
    assert got.structure == structure
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
    structure, leaves = flatten(value)
    outline = slots.Outline(structure, leaves, ROOM, SIZE, memory.device)
    slot = slots.Slot(memory, ROOM)
    slot.lay_out(outline)
    slots.write_headers(memory, SIZE, 0, 1, outline)
    return memory, slot


@pytest.mark.parametrize("first", TREES)
@pytest.mark.parametrize(
    "then", [*TREES, torch.randn(4, 3).t(), torch.randn(2, 3, 4), (torch.randn(2), torch.tensor(3))]
)
def test_a_slot_that_was_laid_out_for_one_value_takes_any(first, then):
    memory, slot = ready_for(first)
    slot.put(then)
    got = slots.Unpacked(memory, ROOM)
    structure, leaves = flatten(then)
    assert got.sound
    assert got.structure == structure
    assert all(torch.equal(out, put) for (_, put), out in zip(leaves, got.tensors, strict=True))


@pytest.mark.parametrize("laid_out_for", [torch.zeros(3, 4), torch.zeros(4, 3).t()])
@pytest.mark.parametrize("value", [torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(3, 8)[:, ::2]])
def test_strides_are_noted_as_they_were_returned(laid_out_for, value):
    memory, slot = ready_for(laid_out_for)
    slot.put(value)
    assert slots.Unpacked(memory, ROOM).strides == [list(value.stride())]


@pytest.mark.parametrize("value", [torch._neg_view(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(3, 4))])
def test_a_tensor_is_stored_as_it_reads(value):
    memory, slot = ready_for(torch.randn(3, 4))
    slot.put(value)
    assert torch.equal(slots.Unpacked(memory, ROOM).tensors[0], value)


@pytest.mark.parametrize("laid_out_for", [torch.zeros(4, 4), torch.zeros(2)])
def test_a_result_in_the_input_arena_is_refused(laid_out_for):
    arena = torch.zeros(2 * SIZE, dtype=torch.uint8)
    argument = slots.view(arena, SIZE, (4, 4), torch.float32)
    _, slot = ready_for(laid_out_for)
    slot.put(argument)
    slot.refuse_inputs(arena)
    slot.put(argument.clone())
    for result in (argument, argument[2:]):
        with pytest.raises(slots.DoesNotFit, match="an argument"):
            slot.put(result)


def test_an_empty_result_lies_nowhere():
    arena = torch.zeros(SIZE, dtype=torch.uint8)
    _, slot = ready_for(torch.zeros(0))
    slot.refuse_inputs(arena)
    slot.put(arena[:0].view(torch.float32))


def test_a_changed_shape_is_laid_out_anew():
    memory = torch.zeros(SIZE, dtype=torch.uint8)
    slot = slots.Slot(memory, ROOM)
    for shape in [(4, 4), (4, 4), (2, 3)]:
        tensor = torch.randn(shape)
        slot.pack(*flatten(tensor))
        assert torch.equal(slots.Unpacked(memory, ROOM).tensors[0], tensor)


@pytest.mark.parametrize(
    "value",
    [torch.zeros(1 << 20), [torch.zeros(1)] * 40, torch.zeros(2, 2).to_sparse(), torch.zeros(1).expand([1] * 9)],
)
def test_what_does_not_fit_is_refused(value):
    with pytest.raises(slots.DoesNotFit):
        slots.Slot(torch.zeros(SIZE, dtype=torch.uint8), ROOM).pack(*flatten(value))


@pytest.mark.parametrize("value", ["text", {1: torch.zeros(1)}, torch.nn.Linear(1, 1), object(), {torch.zeros(1)}])
def test_only_plain_trees_count(value):
    with pytest.raises(NotATree):
        flatten(value)


def test_a_subclass_of_tensor_is_not_a_tensor():
    class Lazy(torch.Tensor):
        pass

    with pytest.raises(NotATree, match="Lazy"):
        flatten(torch.zeros(1).as_subclass(Lazy))


def test_poison_is_not_an_output():
    assert not slots.Unpacked(torch.full((SIZE,), slots.POISON, dtype=torch.uint8), ROOM).written


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=200, max_size=3000), st.booleans())
def test_any_bytes_are_bounded(noise, plausible):
    memory = torch.full((SIZE,), 0, dtype=torch.uint8)
    data = bytearray(noise)
    if plausible:
        data[:16] = struct.pack("<QII", slots.WRITTEN, 1 + data[20] % ROOM, data[21])
    memory[: len(data)] = torch.frombuffer(data, dtype=torch.uint8)
    got = slots.Unpacked(memory, ROOM)
    for tensor in got.tensors:
        assert tensor.numel() * tensor.element_size() <= SIZE


def test_input_slots_keep_tensors_apart():
    tensors = {"a": torch.randn(3), "b": torch.arange(7), "c": torch.empty(0, 2)}
    table, size = slots.lay_out(tensors)
    memory = torch.frombuffer(bytearray(os.urandom(2 * size)), dtype=torch.uint8)
    for name, view in slots.read_inputs(memory, size, table).items():
        view.copy_(tensors[name])
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
def test_a_slot_is_overwritten_when_bytes_behind_its_header_are(at, seen):
    memory = torch.full((SIZE,), slots.POISON, dtype=torch.uint8)
    memory[at] = 0
    assert slots.overwritten(memory, 4096, 64) == [slot == seen for slot in range(SIZE // 4096)]
