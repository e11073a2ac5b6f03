"""Outputs of timed batches: held if every call returns new memory, else copied at once."""

import random
from types import SimpleNamespace

import pytest
import torch

from sandbox.machine.devices.kind import HELD
from sandbox.memory import slots
from sandbox.memory.trees import flatten
from sandbox.protocol.frames import LOST, REUSES
from sandbox.rank import output_copies
from sandbox.rank.output_copies import OutputCopies

CALLS, ROOM, SIZE = 40, 16, 16 << 10
MANY = CALLS + HELD


def fresh(number):
    return torch.full((8, 4), float(number))


def two(number):
    return fresh(number), [torch.full((5,), number, dtype=torch.int64), torch.empty(0)]


def nothing(number):
    return [None]


class Buffers:
    """A solution that returns a few tensors of its own in turn."""

    def __init__(self, many):
        self.buffers = [torch.empty(8, 4) for _ in range(many)]

    def __call__(self, number):
        return self.buffers[number % len(self.buffers)].fill_(number)


class Wrapping:
    """A solution that returns consecutive parts of one buffer, and at its end starts again at another offset."""

    def __init__(self):
        self.at, self.buffer = 0, torch.empty(100)

    def __call__(self, number):
        self.at = self.at if self.at + 32 <= 100 else (self.at + 32) % 7
        part = self.buffer[self.at : self.at + 32].view(8, 4)
        self.at += 32
        return part.fill_(number)


def views_of_one(number):
    return torch.stack([fresh(number), fresh(number)], -1).unbind(-1)


def ready_slots(value, count):
    structure, leaves = flatten(value)
    memory = torch.full((count * SIZE,), slots.POISON, dtype=torch.uint8)
    outline = slots.Outline(structure, leaves, ROOM, SIZE)
    found = [slots.Slot(memory[at : at + SIZE], ROOM) for at in range(0, count * SIZE, SIZE)]
    for slot in found:
        slot.lay_out(outline)
    slots.write_headers(memory, SIZE, 0, count, outline)
    return found


def run(taken, solution, calls, noop=False):
    """Runs a batch and returns its outputs as the trusted side reads them."""
    batch = ready_slots(solution(0), calls)
    taken.start(calls, noop)
    for number, slot in enumerate(batch):
        taken.put(slot, solution(number))
    taken.finish()
    return [slots.Unpacked(slot.memory, ROOM).tensors for slot in batch]


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize(
    "solution",
    [fresh, two, nothing, Buffers(1), Buffers(3), Buffers(CALLS - 1), Buffers(MANY), Wrapping(), views_of_one],
)
def test_every_output_arrives_in_every_batch(solution, holds):
    taken = OutputCopies(holds)
    for calls in (5, CALLS, CALLS, MANY, MANY):
        for number, tensors in enumerate(run(taken, solution, calls)):
            for tensor, expected in zip(tensors, [t for _, t in flatten(solution(number))[1]], strict=True):
                assert torch.equal(tensor, expected)


@pytest.mark.parametrize(
    ("solution", "reuses"),
    [
        *((fresh, False), (two, False), (views_of_one, False)),
        *((Buffers(3), True), (Buffers(1), True), (Wrapping(), True)),
    ],
)
def test_memory_that_comes_again_is_seen(solution, reuses):
    taken = OutputCopies(holds=True)
    run(taken, solution, CALLS)
    assert taken.reuses is reuses
    run(taken, solution, CALLS)
    assert taken.reuses is reuses


@pytest.mark.parametrize("many", [2, 3])
def test_large_results_in_buffers_used_in_turn_arrive(many, monkeypatch):
    monkeypatch.setattr(output_copies, "HELD_BYTES", int((many - 0.5) * fresh(0).nbytes))
    taken, solution = OutputCopies(holds=True), Buffers(many)
    for _ in range(20):  # the outputs that are copied at once are random
        for number, (tensor,) in enumerate(run(taken, solution, CALLS)):
            assert torch.equal(tensor, fresh(number))


def test_prepared_unrun_batch_reports_no_reused_memory():
    taken, solution = OutputCopies(holds=True), Buffers(2)
    run(taken, solution, 1)
    taken.start(3, noop=False)
    for number, (tensor,) in enumerate(run(taken, solution, 3)):
        assert torch.equal(tensor, fresh(number))
    assert taken.reuses


def test_batch_that_loses_outputs_is_reported_alone():
    """Its inputs choose when a kernel returns its buffer: so no batch before showed it twice."""
    taken, kept = OutputCopies(holds=True), torch.empty(8, 4)
    run(taken, fresh, CALLS)
    assert taken.report == 0
    for report in (LOST, REUSES, REUSES):
        outputs = run(taken, lambda number: kept.fill_(number) if number % 2 else fresh(number), CALLS)
        assert taken.report == report
        right = [torch.equal(tensor, fresh(number)) for number, (tensor,) in enumerate(outputs)]
        assert all(right) is (report != LOST)


def test_result_copied_into_held_memory_loses_outputs(monkeypatch):
    taken, kept = OutputCopies(holds=True), torch.empty(8, 4)
    run(taken, fresh, 2)
    draws = iter([1, 0])  # the second result is copied at once
    monkeypatch.setattr(output_copies, "_draws", SimpleNamespace(randrange=lambda many: next(draws)))
    outputs = run(taken, kept.fill_, 2)
    assert not torch.equal(outputs[0][0], fresh(0))
    assert taken.report == LOST


def test_result_of_other_layout_loses_held_outputs(monkeypatch):
    taken, kept = OutputCopies(holds=True), torch.empty(8, 4)
    run(taken, fresh, 2)
    monkeypatch.setattr(output_copies, "_draws", SimpleNamespace(randrange=lambda many: 1))  # none is copied at once
    outputs = run(taken, lambda number: kept.fill_(number).view(4, 8) if number else kept.fill_(number), 2)
    assert not torch.equal(outputs[0][0], fresh(0))
    assert taken.report == LOST


def test_results_of_alternating_tensor_counts_arrive():
    def in_turn(number):
        return two(number) if number % 2 else fresh(number)

    taken = OutputCopies(holds=True)
    batch = [ready_slots(in_turn(number), 1)[0] for number in range(CALLS)]
    for _ in range(2):  # results are held in the second batch
        taken.start(CALLS, noop=False)
        for number, slot in enumerate(batch):
            taken.put(slot, in_turn(number))
        taken.finish()
    for number, slot in enumerate(batch):
        expected = [t for _, t in flatten(in_turn(number))[1]]
        assert all(map(torch.equal, slots.Unpacked(slot.memory, ROOM).tensors, expected))


def test_a_kept_result_is_no_reuse():
    taken, kept = OutputCopies(holds=True), fresh(1)
    run(taken, fresh, CALLS)
    outputs = run(taken, lambda number: kept, MANY, noop=True)
    assert (taken.reuses, taken.watched) == (False, CALLS)
    assert all(torch.equal(tensor, kept) for (tensor,) in outputs)


def test_seeds_do_not_tell_what_is_held():
    taken, drawn = OutputCopies(holds=True), set()
    run(taken, fresh, CALLS)
    for _ in range(20):
        random.seed(0)
        taken.start(CALLS, noop=False)
        drawn.add(taken._at_once)
    assert len(drawn) > 1


def test_result_that_later_call_completes_is_wrong_somewhere():
    """The last of several calls does the work of all of them."""
    taken, waiting = OutputCopies(holds=True), []

    def fuses(number):
        waiting.append(torch.empty(8, 4).fill_(-1))
        if len(waiting) == 8:
            for place, output in enumerate(waiting):
                output.fill_(number - 7 + place)
            waiting.clear()
            return torch.full((8, 4), float(number))
        return waiting[-1]

    def wrong(calls):
        waiting.clear()
        taken.start(calls, noop=False)
        batch = ready_slots(fresh(0), calls)
        for number, slot in enumerate(batch):
            taken.put(slot, fuses(number))
        taken.finish()
        found = (slots.Unpacked(slot.memory, ROOM).tensors[0] for slot in batch)
        return sum(not torch.equal(tensor, fresh(number)) for number, tensor in enumerate(found))

    assert wrong(MANY) > CALLS  # in the first batch, each output is copied at once
    assert sum(wrong(MANY) for _ in range(8)) > 8


def test_copies_are_loaded_once_before_the_clock(monkeypatch):
    copied, (slot,) = [], ready_slots(two(1), 1)
    monkeypatch.setattr(
        output_copies, "copy_all", lambda targets, tensors: copied.append([*map(len, (targets, tensors))])
    )
    for holds, expected in ((False, []), (True, [[2, 2]] * 3)):
        taken = OutputCopies(holds)
        for _ in range(2):
            taken.warm_up(slot, two(1))
            assert copied == expected


@pytest.mark.parametrize("late", [slice(200, 204), slice(0, 256)])
def test_result_completed_while_copied_is_found(late, monkeypatch):
    (slot,), copies, result = ready_slots(torch.zeros(256), 1), slots.copy_all, torch.zeros(256)

    def copy_all(targets, tensors):
        result[late] = 1
        copies(targets, tensors)

    monkeypatch.setattr(slots, "copy_all", copy_all)
    monkeypatch.setattr(slots, "_drawn", lambda: 0.1)
    slot.put(result)
    assert 0 in slot.targets[0][late]


def test_results_share_memory_up_to_last_element():
    buffer = torch.empty(40)
    first = buffer[:32].view(8, 4)
    for at, share in ((31, True), (32, False)):
        for one in (first, first.t()):
            assert output_copies.share_memory([[buffer[at:]], [one, one[1:]]]) is share


def test_no_more_results_are_held_than_were_watched(monkeypatch):
    taken = OutputCopies(holds=True)
    run(taken, Buffers(HELD), MANY)
    assert (taken.watched, taken.reuses) == (HELD, False)
    taken.start(1600, noop=False)
    assert 40 < len(taken._at_once) < 200  # of 1,600 results one in 16
    for most, size in ((HELD, 1 << 30), (5, 5 * fresh(0).nbytes)):
        monkeypatch.setattr(output_copies, "HELD_BYTES", size)
        run(few := OutputCopies(holds=True), Buffers(most), MANY)
        assert not few.reuses
        monkeypatch.setattr(output_copies, "_draws", SimpleNamespace(randrange=lambda many: 1))  # none at once
        taken.start(MANY, noop=False)
        held = []
        for number, slot in enumerate(ready_slots(fresh(0), MANY)):
            taken.put(slot, fresh(number))
            held.append(sum(map(len, taken._held)))
        assert held[:most] == [*range(1, most), 0]
        taken.finish()
