"""The checked first calls of a kernel. They use private copies of the inputs, so that a write is found and no crash."""

from collections.abc import Callable
from typing import Any

from sandbox.memory.bits import same_bits
from sandbox.memory.slots import DoesNotFit
from sandbox.memory.trees import NotATree, flatten
from sandbox.protocol.frames import Kind
from sandbox.rank.iterations import Iterations
from sandbox.rank.problem_code import Leaves, with_mutated


class CallRefused(Exception):
    """A checked call did something forbidden. kind: the kind of failure."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def run_checked(
    solution: Callable[..., Any], iterations: Iterations, synchronize: Callable[[], None]
) -> list[Any]:
    """Calls solution on every armed iteration, packs the results into slots, and returns them.

    Raises:
        CallRefused: a result has the wrong structure or shares memory with an argument, or an input was written.
    """
    mutates, results = iterations.mutates, []
    for arguments, given, _, slot in iterations.armed:
        result = solution(*arguments)
        results.append(with_mutated(result, given, mutates))
        try:
            structure, leaves = flatten(results[-1])
            slot.pack(structure, leaves)
        except (NotATree, DoesNotFit) as error:
            raise CallRefused(Kind.BAD_STRUCTURE, f"solution returned {error}") from None
        iterations.last = (structure, leaves)
        iterations.expect(structure, leaves, slot.room)
        if not iterations.code.problem.check.may_alias:
            _refuse_alias(result, given)
    synchronize()
    for _, given, drawn, _ in iterations.armed:
        for name, tensor in given.items():
            if name not in mutates and not same_bits(tensor, drawn[name]):
                raise CallRefused(Kind.MUTATED, f"solution wrote to its argument {name}")
    return results


def _refuse_alias(result: Any, given: Leaves) -> None:
    """Raises CallRefused if the result is an argument or a view of one."""
    spans = [(t.data_ptr(), t.data_ptr() + t.numel() * t.element_size(), name) for name, t in given.items()]
    for path, tensor in flatten(result)[1]:
        for low, high, name in spans:
            if tensor.numel() and low <= tensor.data_ptr() < high:
                raise CallRefused(
                    Kind.BAD_STRUCTURE,
                    f"output {path} shares memory with the argument {name}; return a fresh tensor",
                )
