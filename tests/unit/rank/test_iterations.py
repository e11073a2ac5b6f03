"""Arguments of a slot's next iteration lie in the same memory; no change by a kernel to the last ones remains."""

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from opened_problems import PROBLEMS, opened

from problems.setting import RankSetting
from sandbox.memory import slots
from sandbox.protocol.messages import SlotLayout, SlotTable
from sandbox.rank.iterations import Iterations, fresh
from sandbox.rank.problem_code import Leaves, ProblemCode

SEEDS = 11, 12


def settled(slug: str) -> tuple[ProblemCode, RankSetting, Leaves]:
    problem = next(problem for problem in PROBLEMS if problem.slug == slug)
    found = opened(problem, problem.dtypes[0])
    assert found is not None
    return found


def iterations_of(slug: str) -> tuple[Iterations, list[SlotTable]]:
    """Returns two slots with a problem's drawn inputs."""
    code, setting, tensors = settled(slug)
    places, size = slots.lay_out(tensors)
    inputs = torch.zeros(2 * size, dtype=torch.uint8)
    for slot, seed in enumerate(SEEDS):
        theirs = slots.read_inputs(inputs, slot * size, places)
        for name, tensor in code.draw(setting, seed).items():
            theirs[name].copy_(tensor)
    layout = SlotLayout(slots=2, in_bytes=size, out_bytes=1 << 16, room=16, sealed=True)
    outputs = torch.zeros(2 << 16, dtype=torch.uint8)
    return Iterations(code, setting, layout, inputs, outputs), [SlotTable(slot, places) for slot in range(2)]


def armed(iterations: Iterations, tables: list[SlotTable], checking: bool = False) -> list[tuple[Any, ...]]:
    iterations.measure(tables)
    iterations.arm(tables, checking)
    return [iteration.arguments for iteration in iterations.armed]


def test_argument_changes_are_gone_in_next_batch() -> None:
    iterations, tables = iterations_of("allreduce")
    (first,), _ = armed(iterations, tables)
    pointer, shape = first.data_ptr(), first.shape
    first.requires_grad_()
    (first * first.detach()).sum().backward()
    first.data = first.detach().unsqueeze(0)
    (again,), _ = armed(iterations, tables)
    assert (again.data_ptr(), again.shape, again.grad, again.requires_grad) == (pointer, shape, None, False)
    assert again.unsqueeze_(0).data_ptr() == pointer


@pytest.mark.parametrize("checking", [False, True])
def test_a_list_is_complete_in_the_next_batch(checking: bool) -> None:
    iterations, tables = iterations_of("clip_grad_norm_no_ep")
    pointers = []
    for _ in range(2):
        gradients = armed(iterations, tables, checking)[0][0]
        pointers.append([gradient.data_ptr() for gradient in gradients])
        assert len(pointers[-1]) == 3
        gradients.clear()
    assert checking or pointers[0] == pointers[1]


def test_writable_tensors_are_judged_as_left() -> None:
    iterations, tables = iterations_of("clip_grad_norm_no_ep")
    for checking in (True, False):
        gradients = armed(iterations, tables, checking)[0][0]
        given = iterations.armed[0].given
        assert [given[f"grad{number}"] is gradient for number, gradient in enumerate(gradients)] == [True] * 3


def test_check_keeps_memory_that_argument_had() -> None:
    iterations, tables = iterations_of("allreduce")
    (argument,), _ = armed(iterations, tables, checking=True)
    kept, drawn = iterations.armed[0].given["tensor"], iterations.armed[0].drawn["tensor"]
    before = argument.clone()
    argument.zero_()
    argument.data = before
    assert not torch.equal(kept, drawn)


def test_arena_survives_what_kernel_makes_of_storage() -> None:
    iterations, tables = iterations_of("allreduce")
    ((argument,), *_) = armed(iterations, tables)
    assert argument.untyped_storage().nbytes() == argument.nbytes
    argument.share_memory_()
    ((again,), *_) = armed(iterations, tables)
    iterations.armed[0].drawn["tensor"].fill_(7)  # as the next inputs are filled in
    assert (again == 7).all()
    assert not (argument == 7).all()


def test_untimed_calls_get_fresh_arguments() -> None:
    iterations, tables = iterations_of("clip_grad_norm_no_ep")
    armed(iterations, tables)
    seen = []

    def solution(gradients: list[torch.Tensor], *_: Any) -> list[torch.Tensor]:
        seen.append([(gradient.shape, gradient.sum()) for gradient in gradients])
        return [gradient.zero_().unsqueeze_(0) for gradient in gradients]

    results = [iterations.rehearse(solution) for _ in range(3)]
    assert seen[0] == seen[1] == seen[2] != []
    assert all(given["grad0"] is result[0] for result, given in results)


def test_untimed_calls_keep_inputs_of_check(monkeypatch: pytest.MonkeyPatch) -> None:
    iterations, tables = iterations_of("allreduce")
    for checking in (True, False):
        armed(iterations, tables[::-1] if checking else tables, checking)
        kept, drawn = iterations.practice["tensor"], iterations.armed[not checking].drawn["tensor"]
        assert torch.equal(kept, drawn)
        assert iterations.armed[0].given["tensor"].data_ptr() != kept.data_ptr()
    monkeypatch.setattr("sandbox.rank.iterations.LARGE", iterations.in_bytes)
    for checking in (True, False):  # too large for a copy
        iterations.practice = {}
        armed(iterations, tables, checking)
        first = iterations.armed[0]
        assert iterations.practice is (first.given if checking else first.drawn)


def test_extent_of_armed_slots_is_measured() -> None:
    iterations, tables = iterations_of("allreduce")
    found = []
    for some in (tables, tables[1:], tables[:1], []):
        armed(iterations, some)
        iterations.measure(some)
        found.append((iterations.first, iterations.used_in, iterations.used_out, len(iterations.armed)))
    size = iterations.in_bytes
    assert found == [(0, 2 * size, 2 << 16, 0), (1, 2 * size, 2 << 16, 0), (0, size, 1 << 16, 0), (0, 0, 0, 0)]


def test_inputs_of_other_shapes_are_read_anew() -> None:
    iterations, (table, _) = iterations_of("allreduce")
    first, again = (iterations._drawn(table) for _ in range(2))
    assert first is again
    places, _ = slots.lay_out({"tensor": torch.zeros(3)})
    assert iterations._drawn(SlotTable(0, places))["tensor"].shape == (3,)


def test_armed_slots_alone_expect_outputs() -> None:
    iterations, tables = iterations_of("allreduce")
    calls: list[torch.Tensor] = []
    first, second = iterations.slots
    kept = []
    for some in (tables[1:], tables[1:], tables):
        armed(iterations, some)
        iterations.lay_out(lambda tensor: calls.append(tensor) or tensor[0].clone())
        kept.append((len(calls), first.outline, second.outline, second.targets))
    outline, targets = iterations.outline, second.targets
    assert outline is not None
    assert kept == [(1, None, outline, targets), (1, None, outline, targets), (1, outline, outline, targets)]
    assert all(each[3] is targets for each in kept)  # a slot is laid out once
    assert all(slots.Unpacked(slot.memory, 16).written for slot in (first, second))


def test_tensors_apart_of_gpus_and_of_nothing() -> None:
    on_gpu: Any = SimpleNamespace(is_cuda=True, numel=lambda: 1, detach=lambda: torch.ones(1))
    found = fresh({"gpu": on_gpu, "empty": torch.empty(0, 3)})
    assert [tensor.shape for tensor in found.values()] == [(1,), (0, 3)]


def changeable(value: Any) -> Iterator[Any]:
    """Yields every object in arguments that a kernel could change for a later call."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from changeable(each)
    if isinstance(value, dict):
        yield from changeable(list(value.values()))
    if isinstance(value, torch.nn.Module):
        yield from value.parameters()
    if isinstance(value, list | dict | torch.Tensor | torch.nn.Module):
        yield value


@pytest.mark.problems
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.slug)
def test_arguments_made_twice_share_no_object(problem: Any) -> None:
    code, setting, tensors = settled(problem.slug)
    twice = [list(changeable(code.arguments(fresh(tensors), setting))) for _ in range(2)]
    assert len(twice[0]) == len(twice[1]) > 0
    assert not [one for one, other in itertools.product(*twice) if one is other]
