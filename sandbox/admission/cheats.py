"""The cheats of the admission test: outputs that must not pass."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from sandbox.memory.trees import Output
from sandbox.rank.problem_code import Leaves


def changed(output: Output, change: Callable[[torch.Tensor], torch.Tensor]) -> Output:
    """An output with every tensor changed."""
    return output[0], [(name, change(tensor)) for name, tensor in output[1]]


def one_wrong(output: Output, counts: Callable[[Output], bool]) -> Output:
    """An output with one element replaced by a clearly different value on the last rank.

    It is the last element of the largest output for which `counts` is true, because a problem may compare only a part of what
    is returned.
    """
    if dist.get_rank() == dist.get_world_size() - 1:
        for position in sorted(range(len(output[1])), key=lambda i: -output[1][i][1].numel()):
            tensors = list(output[1])
            name, tensor = tensors[position]
            tensors[position] = (name, last_changed(tensor))
            if tensor.numel() and counts((output[0], tensors)):
                return output[0], tensors
    return output


def last_changed(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with a clearly different last element."""
    flat = tensor.clone().reshape(-1)
    if not flat.numel():
        return flat.view(tensor.shape)
    if tensor.dtype == torch.bool:
        flat[-1] = ~flat[-1]
    elif tensor.dtype.is_floating_point and tensor.element_size() == 1:
        flat[-1] = -1.0 if float(flat[-1]) > 0 else 1.0
    elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        real = flat.abs().to(torch.float32) if not tensor.dtype.is_complex else flat.abs()
        scale = float(real[torch.isfinite(real)].max()) if bool(torch.isfinite(real).any()) else 1.0
        flat[-1] = flat[-1] + (scale or 1.0) if bool(torch.isfinite(flat[-1].abs().float())) else 0.0
    else:
        flat[-1] += 1
    return flat.view(tensor.shape)


def other_dtype(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in another floating or complex dtype."""
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128 if tensor.dtype != torch.complex128 else torch.complex64)
    return tensor.to(torch.float64 if tensor.dtype != torch.float64 else torch.float32)


def eight_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Floating and complex values rounded to float8_e4m3fn with one scale for the tensor; other values unchanged."""
    if tensor.dtype.is_complex:
        return torch.view_as_complex(eight_bits(torch.view_as_real(tensor)))
    if not tensor.dtype.is_floating_point:
        return tensor
    scale = tensor.float().abs().amax().clamp(min=1e-30) / 448 if tensor.numel() else 1.0
    return ((tensor.float() / scale).to(torch.float8_e4m3fn).float() * scale).to(tensor.dtype)


def without_variance(output: Output) -> list[str]:
    """Names of floating outputs with several elements that are all equal, which cannot be checked."""
    dead = []
    for name, tensor in output[1]:
        if tensor.numel() > 1 and tensor.dtype.is_floating_point:
            values = tensor.float()
            values = values[torch.isfinite(values)]
            if values.numel() > 1 and float(values.std()) == 0.0:
                dead.append(name)
    return dead


COLLECTIVES = (
    *("all_reduce", "all_gather", "all_gather_into_tensor", "all_to_all", "all_to_all_single"),
    *("reduce_scatter", "reduce_scatter_tensor", "broadcast", "reduce", "scatter", "gather", "barrier"),
    *("send", "recv", "isend", "irecv", "P2POp", "batch_isend_irecv"),
    *("all_gather_object", "broadcast_object_list"),
)


def no_communication() -> AbstractContextManager[Any]:
    """While active, collectives return at once, and only the rank's own share moves."""
    replaced: dict[str, Any] = {name: _local(name) for name in COLLECTIVES}
    active: AbstractContextManager[Any] = mock.patch.multiple(dist, **replaced)
    return active


def _local(name: str) -> Callable[..., Any]:
    """A collective in which the rank's own share still moves, as if all peers sent zeros."""

    def local(*args: Any, **kwargs: Any) -> Any:
        if name == "P2POp":
            return args[:2]
        if name == "batch_isend_irecv":
            return [operation(tensor) for operation, tensor in args[0]]
        if len(args) > 1 and name in {"all_gather_into_tensor", "all_to_all_single", "reduce_scatter_tensor"}:
            _copy(args[0], args[1])
        elif len(args) > 1 and name in {"all_gather", "all_to_all"}:
            for i, target in enumerate(args[0]):
                _copy(target, args[1][i] if isinstance(args[1], list) else args[1])
        elif len(args) > 1 and name == "reduce_scatter":
            _copy(args[0], args[1][0])
        elif name in {"recv", "irecv"} or (
            name == "broadcast" and _given(args, kwargs, "src") not in (None, dist.get_rank())
        ):
            args[0].zero_()
        elif name == "gather":
            for i, target in enumerate(_given(args, kwargs, "gather_list") or []):
                _copy(target, args[0] if i == dist.get_rank() else torch.zeros_like(target))
        elif name == "scatter":
            parts = _given(args, kwargs, "scatter_list")
            _copy(args[0], parts[dist.get_rank()] if parts else torch.zeros_like(args[0]))
        return SimpleNamespace(wait=lambda *_: True)

    return local


def _copy(target: Any, source: Any) -> None:
    if isinstance(target, torch.Tensor) and isinstance(source, torch.Tensor) and target.numel():
        count = min(target.numel(), source.numel())
        target.zero_()
        target.view(-1)[:count].copy_(source.reshape(-1)[:count].to(target.dtype))


def _given(args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Any:
    return kwargs.get(name, args[1] if len(args) > 1 else None)


def returns_input(baseline: Output, tensors: Leaves) -> Output | None:
    """Outputs replaced by drawn tensors of the same shape and dtype, or by zeros if there are none."""
    leaves = []
    for name, tensor in baseline[1]:
        same = [t for t in tensors.values() if t.shape == tensor.shape and t.dtype == tensor.dtype]
        leaves.append((name, same[0] if same else torch.zeros_like(tensor)))
    return baseline[0], leaves


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
