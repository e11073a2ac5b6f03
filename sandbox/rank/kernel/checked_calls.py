"""The checked first calls of a kernel. They use private copies of the inputs, so a write is detected and no crash."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from sandbox.memory.slots import DoesNotFit, same_bits
from sandbox.memory.trees import NotATree, flatten
from sandbox.protocol.frames import Kind
from sandbox.rank.iterations import Iterations
from sandbox.rank.kernel.module import KernelRefused
from sandbox.rank.problem_code import Leaves, with_mutated


def run_checked(
    solution: Callable[..., Any], iterations: Iterations, synchronize: Callable[[], None], begin: Callable[[int], None]
) -> list[Any]:
    """Calls solution on every armed iteration, packs the results into slots, and returns them.

    begin(number): called before the call of this number, from 1 on.

    Raises:
        KernelRefused: a result has the wrong structure or shares memory with an argument, or an input was written.
    """
    mutates, results = iterations.mutates, []
    for number, (arguments, given, _, slot) in enumerate(iterations.armed, 1):
        begin(number)
        result = solution(*arguments)
        results.append(with_mutated(result, given, mutates))
        try:
            structure, leaves = flatten(results[-1])
            slot.pack(structure, leaves)
        except (NotATree, DoesNotFit) as error:
            raise KernelRefused(Kind.BAD_STRUCTURE, f"solution returned {error}") from None
        iterations.last = (structure, leaves)
        iterations.expect(structure, leaves, slot.room)
        if not iterations.code.problem.check.may_alias:
            _refuse_alias(result, arguments, given, iterations.code.problem.parameters)
    synchronize()
    for arguments, given, drawn, _ in iterations.armed:
        for name, tensor in given.items():
            if name not in mutates and not same_bits(tensor, drawn[name]):
                named = _argument(tensor, arguments, iterations.code.problem.parameters) or name
                raise KernelRefused(Kind.MUTATED, f"solution wrote to its argument {named}")
    return results


def _refuse_alias(result: Any, arguments: Sequence[Any], given: Leaves, parameters: Sequence[tuple[str, Any]]) -> None:
    """Raises KernelRefused if the result is an argument or a view of one."""
    for path, returned in flatten(result)[1]:
        for name, tensor in given.items():
            if returned.numel() and _overlaps(returned, tensor):
                named = _argument(tensor, arguments, parameters) or name
                raise KernelRefused(
                    Kind.BAD_STRUCTURE, f"output {path} shares memory with the argument {named}; return a fresh tensor"
                )


def _argument(tensor: torch.Tensor, arguments: Sequence[Any], parameters: Sequence[tuple[str, Any]]) -> str:
    """The name of the baseline's parameter that gets an input, with the place in a list; empty if there is none."""
    for (name, _), argument in zip(parameters, arguments, strict=False):
        if isinstance(argument, torch.Tensor) and _overlaps(argument, tensor):
            return name
        if isinstance(argument, list | tuple):
            for place, part in enumerate(argument):
                if isinstance(part, torch.Tensor) and _overlaps(part, tensor):
                    return f"{name}[{place}]"
    return ""


def _overlaps(part: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether a tensor begins within another one's memory."""
    begin = whole.data_ptr()
    return begin <= part.data_ptr() < begin + whole.numel() * whole.element_size()
