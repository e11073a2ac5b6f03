"""Records the shapes of a baseline's matrix products and convolutions.

Libraries choose an algorithm by the shapes and cache the choice: the first call with a shape takes up to three times as long
(BENCHMARKS.md). If shapes depend on the values of inputs, such as the number of tokens of an expert, nearly every call of a new
process has new shapes.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from problems.setting import RankSetting
from sandbox.rank.problem_code import Leaves, ProblemCode

PRODUCTS = {
    "linear",
    "matmul",
    "einsum",
    "mm",
    "bmm",
    "addmm",
    "addmm_",
    "baddbmm",
    "baddbmm_",
    "_scaled_mm",
    "_grouped_mm",
}
CONVOLUTIONS = {f"conv{transposed}{n}d" for transposed in ("", "_transpose") for n in (1, 2, 3)}
LOOKED_UP = PRODUCTS | CONVOLUTIONS
"""Functions of torch whose arguments' shapes are recorded."""

Shapes = list[tuple[int, ...]]


class _Recording(TorchFunctionMode):
    """Records the shapes of the arguments of LOOKED_UP. A mode of torch's dispatcher would import torch's compiler."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self.shapes = shapes

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") in LOOKED_UP:
            self.shapes += [tuple(given.shape) for given in args if isinstance(given, torch.Tensor)]
        return func(*args, **(kwargs or {}))


def shapes_of(code: ProblemCode, tensors: Leaves, setting: RankSetting) -> Shapes:
    """Runs the baseline once (collective) and returns the shapes of its matrix products and convolutions, in order."""
    shapes: Shapes = []
    with _Recording(shapes):
        code.call(code.baseline, tensors, setting)
    return shapes
