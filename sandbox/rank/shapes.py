"""Whether the matrix products and convolutions of a baseline have the same shapes in every call.

Libraries look up how to compute them by their shapes, and remember what they found: the first call with a shape takes up to three
times as long (BENCHMARKS.md). Where shapes depend on the inputs' values, such as how many tokens an expert gets, nearly
every call of a fresh process has new ones.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from problems.setting import RankSetting
from sandbox.rank.problem_code import Leaves, ProblemCode

LOOKED_UP = {
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "_scaled_mm",
    "_grouped_mm",
    "convolution",
    "convolution_backward",
}
"""Operations whose shapes count, as torch's dispatcher calls them."""

Shapes = list[tuple[int, ...]]


class _Recording(TorchDispatchMode):
    """Notes the shapes of the tensors that such operations get."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shapes = shapes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket.__name__ in LOOKED_UP:
            self.shapes += [tuple(given.shape) for given in args if isinstance(given, torch.Tensor)]
        return func(*args, **(kwargs or {}))


def shapes_of(code: ProblemCode, tensors: Leaves, setting: RankSetting) -> Shapes:
    """Runs the baseline once (collective): the shapes that its matrix products and convolutions get on this rank, in order."""
    shapes: Shapes = []
    with _Recording(shapes):
        code.call(code.baseline, tensors, setting)
    return shapes
