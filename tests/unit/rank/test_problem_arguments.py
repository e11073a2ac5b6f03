"""`arguments` of each problem reads no values of its inputs, which come with GO, except those that it names."""

from typing import Any

import pytest
import torch
from msgspec.structs import replace
from opened_problems import PROBLEMS, opened

from problems.specification import Problem, ProblemError


def shape_of(value: Any) -> Any:
    """Returns the arguments with shapes, dtypes and strides in place of tensors, also for the tensors of a module."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype, value.stride()
    if isinstance(value, torch.nn.Module):
        return [(name, shape_of(tensor)) for name, tensor in value.state_dict().items()]
    return [shape_of(each) for each in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.problems
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.slug)
def test_arguments_are_the_same_while_inputs_are_withheld(problem: Problem) -> None:
    found = opened(problem, problem.dtypes[0])
    assert found is not None
    code, setting, tensors = found
    for stale_byte in (0x00, 0x01, 0xA5):
        stale = {
            name: torch.full((tensor.numel() * tensor.element_size(),), stale_byte, dtype=torch.uint8)
            .view(tensor.dtype)
            .view(tensor.shape)
            if code.is_withheld(name) and (stale_byte < 2 or tensor.dtype is not torch.bool)
            else tensor
            for name, tensor in tensors.items()
        }
        assert shape_of(code.arguments(stale, setting)) == shape_of(code.arguments(tensors, setting))


def test_integers_are_withheld_unless_they_shape_arguments() -> None:
    code, *_ = opened(next(each for each in PROBLEMS if each.slug == "gnn_neighbor_sampling"), "int64")
    assert code.is_withheld("seed_nodes")
    assert not code.is_withheld("fanouts")
    with pytest.raises(ProblemError, match=r"solution of baseline\.py has no argument gone"):
        type(code)(replace(code.problem, arguments={"gone": "1"}))
    with pytest.raises(ProblemError, match="fanouts is in `mutates`"):
        type(code)(replace(code.problem, mutates=["seed_nodes", "fanouts"]))
