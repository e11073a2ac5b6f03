"""The cheats of the admission test: outputs that must not pass.

Those of reduced precision are nearly right. They run the baseline itself with rounded inputs or messages, or without small terms.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from sandbox.memory.trees import Output
from sandbox.rank.problem_code import Leaves

Change = Callable[[torch.Tensor], torch.Tensor]


def changed(output: Output, change: Change) -> Output:
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


BLOCK = 32
"""Elements that share a scale. Few elements lose less, which is harder to detect."""
ROUNDED = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
LEFT_OUT = 0.1
"""Share of the elements of an input that count as small."""


def _of_floats(change: Change) -> Change:
    """The change of complex tensors, too, by their real and imaginary parts; tensors of other dtypes stay as they are."""

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_complex():
            return torch.view_as_complex(changed(torch.view_as_real(tensor)).contiguous())
        return change(tensor) if tensor.dtype in ROUNDED and tensor.numel() else tensor

    return changed


def in_blocks(bits: int) -> Change:
    """Rounds to signed integers of this many bits, with one scale for BLOCK elements in a row."""
    levels = 2 ** (bits - 1) - 1

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        flat = tensor.detach().reshape(-1).double()
        blocks = torch.nn.functional.pad(flat, (0, -flat.numel() % BLOCK)).view(-1, BLOCK)
        scales = blocks.abs().amax(dim=1, keepdim=True) / levels
        coarse = (blocks / scales).round() * scales
        coarse = torch.where(torch.isfinite(coarse), coarse, blocks)
        return coarse.view(-1)[: flat.numel()].view(tensor.shape).to(tensor.dtype)

    return _of_floats(rounded)


def significant(bits: int) -> Change:
    """Rounds every value to this many significant bits."""

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        mantissa, exponent = torch.frexp(tensor.double())
        coarse = torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent)
        return torch.where(torch.isfinite(tensor), coarse, tensor.double()).to(tensor.dtype)

    return _of_floats(rounded)


def without_small(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the smallest tenth of the elements replaced by zeros."""
    smallest = int(LEFT_OUT * tensor.numel())
    if not smallest or not (tensor.is_complex() or tensor.dtype in ROUNDED):
        return tensor
    size = tensor.abs().double()
    return torch.where(size <= size.reshape(-1).kthvalue(smallest).values, torch.zeros_like(tensor), tensor)


_SENT = {
    **dict.fromkeys(("all_gather", "all_gather_into_tensor", "all_to_all", "all_to_all_single"), 1),
    **dict.fromkeys(("reduce_scatter", "reduce_scatter_tensor", "scatter"), 1),
    **dict.fromkeys(("send", "isend", "gather"), 0),
}
"""The argument of each collective that is sent."""
_SENT_NAMES = ("tensor", "input_tensor", "input", "input_list", "input_tensor_list", "scatter_list")
_IN_PLACE = ("all_reduce", "reduce", "broadcast")


@contextmanager
def coarse_messages(change: Change) -> Iterator[None]:
    """While active, changes every message before it is sent."""
    saved = {name: getattr(dist, name) for name in (*_SENT, *_IN_PLACE, "irecv", "P2POp")}
    inside = False  # a collective calls another

    def all_of(sent: Any) -> Any:
        if isinstance(sent, list | tuple):
            return type(sent)(map(all_of, sent))
        return change(sent) if isinstance(sent, torch.Tensor) else sent

    def coarse(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside or name == "irecv":
                return saved[name](*args, **kwargs)
            inside, given = True, list(args)
            try:
                if name in _IN_PLACE:
                    tensor = args[0] if args else kwargs["tensor"]
                    with torch.no_grad():
                        tensor.copy_(change(tensor))
                else:
                    if len(given) > _SENT[name]:
                        given[_SENT[name]] = all_of(given[_SENT[name]])
                    kwargs |= {each: all_of(kwargs[each]) for each in _SENT_NAMES if each in kwargs}
                return saved[name](*given, **kwargs)
            finally:
                inside = False

        return call

    def message(op: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        known = originals.get(op, op)  # P2POp accepts only the original functions
        sends = known is saved["isend"] and not inside
        return saved["P2POp"](known, change(tensor) if sends else tensor, *args, **kwargs)

    replaced = {name: coarse(name) for name in saved} | {"P2POp": message}
    originals = {replaced[name]: saved[name] for name in ("isend", "irecv")}
    with mock.patch.multiple(dist, **replaced):
        yield


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


_TURNED: dict[Any, Callable[..., tuple[Any, ...]]] = {
    **dict.fromkeys((aten.mm.default, aten.bmm.default), lambda a, b: (a.flip(-1), b.flip(-2))),
    **dict.fromkeys((aten.addmm.default, aten.baddbmm.default), lambda c, a, b: (c, a.flip(-1), b.flip(-2))),
    **dict.fromkeys((aten.sum.default, aten.mean.default), lambda x: (x.flip(list(range(x.dim()))),)),
    **dict.fromkeys(
        (aten.sum.dim_IntList, aten.mean.dim),
        lambda x, dims=None, *rest: (x.flip(list(dims) if dims else list(range(x.dim()))), dims, *rest),
    ),
}
"""By operation: its arguments, with the terms of products and sums in the opposite order."""
