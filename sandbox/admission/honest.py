"""Honest variants of the admission test: right outputs that are computed in another way. They must pass."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sandbox.memory.trees import Output
from sandbox.rank.problem_code import Leaves

aten = torch.ops.aten
SHORT = (torch.bfloat16, torch.float16)


def as_returned(output: Output, baseline: Output) -> Output:
    """The output's values in the baseline's dtypes."""
    pairs = zip(output[1], baseline[1], strict=True)
    return output[0], [(name, y.to(b.dtype)) for (name, y), (_, b) in pairs]


def widened(tensors: Leaves) -> Leaves:
    """The inputs with 16-bit floats converted to float32."""
    return {name: t.float() if t.dtype in SHORT else t for name, t in tensors.items()}


class OtherOrder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, products and sums add their terms in the opposite order."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: otherwise every rank would import torch._dynamo, which takes seconds."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        turned = _TURNED.get(func)
        return func(*(turned(*args) if turned else args), **(kwargs or {}))


def _mm(a: torch.Tensor, b: torch.Tensor) -> tuple[Any, ...]:
    return a.flip(-1), b.flip(-2)


def _addmm(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[Any, ...]:
    return c, a.flip(-1), b.flip(-2)


def _sum(x: torch.Tensor, dims: Any = None, *rest: Any) -> tuple[Any, ...]:
    return x.flip(list(dims) if dims else list(range(x.dim()))), dims, *rest


def _sum_all(x: torch.Tensor) -> tuple[Any, ...]:
    return (x.flip(list(range(x.dim()))),)


_TURNED: dict[Any, Callable[..., tuple[Any, ...]]] = {
    aten.mm.default: _mm,
    aten.bmm.default: _mm,
    aten.addmm.default: _addmm,
    aten.baddbmm.default: _addmm,
    aten.sum.default: _sum_all,
    aten.mean.default: _sum_all,
    aten.sum.dim_IntList: _sum,
    aten.mean.dim: _sum,
}
