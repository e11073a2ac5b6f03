"""Cheats of reduced precision: coarse messages, coarse inputs, small terms left out.

Their outputs are nearly right. They run the baseline itself with rounded inputs or messages.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from sandbox.rank.problem_code import Leaves

BLOCK = 32
"""Elements that share a scale. Few elements lose less, which is harder to detect."""
ROUNDED = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
LEFT_OUT = 0.1
"""Share of the elements of an input that count as small."""

Change = Callable[[torch.Tensor], torch.Tensor]


def in_blocks(bits: int) -> Change:
    """Rounds to signed integers of this many bits, with one scale for BLOCK elements in a row."""
    levels = 2 ** (bits - 1) - 1

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_complex():
            return torch.view_as_complex(rounded(torch.view_as_real(tensor)).contiguous())
        if tensor.dtype not in ROUNDED or not tensor.numel():
            return tensor
        flat = tensor.detach().reshape(-1).double()
        blocks = torch.nn.functional.pad(flat, (0, -flat.numel() % BLOCK)).view(-1, BLOCK)
        scales = blocks.abs().amax(dim=1, keepdim=True) / levels
        coarse = (blocks / scales).round() * scales
        coarse = torch.where(torch.isfinite(coarse), coarse, blocks)
        return coarse.view(-1)[: flat.numel()].view(tensor.shape).to(tensor.dtype)

    return rounded


def significant(bits: int) -> Change:
    """Rounds every value to this many significant bits."""

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_complex():
            return torch.view_as_complex(rounded(torch.view_as_real(tensor)).contiguous())
        if tensor.dtype not in ROUNDED:
            return tensor
        mantissa, exponent = torch.frexp(tensor.double())
        coarse = torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent)
        return torch.where(torch.isfinite(tensor), coarse, tensor.double()).to(tensor.dtype)

    return rounded


def without_small(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the smallest tenth of the elements replaced by zeros."""
    smallest = int(LEFT_OUT * tensor.numel())
    if not smallest or not (tensor.is_complex() or tensor.dtype in ROUNDED):
        return tensor
    size = tensor.abs().double()
    return torch.where(size <= size.reshape(-1).kthvalue(smallest).values, torch.zeros_like(tensor), tensor)


def changed_inputs(tensors: Leaves, change: Change) -> Leaves:
    """Changes all inputs of an iteration."""
    return {name: change(tensor) for name, tensor in tensors.items()}


_SENT = {
    **dict.fromkeys(("all_gather", "all_gather_into_tensor", "all_to_all", "all_to_all_single"), 1),
    **dict.fromkeys(("reduce_scatter", "reduce_scatter_tensor", "scatter"), 1),
    **dict.fromkeys(("send", "isend", "gather"), 0),
}
"""The argument of each collective that is sent."""
_SENT_NAMES = ("tensor", "input_tensor", "input", "input_list", "input_tensor_list", "scatter_list")
_IN_PLACE = ("all_reduce", "reduce", "broadcast")


class CoarseMessages:
    """While active, changes every message before it is sent."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.depth = 0

    def __enter__(self) -> None:
        names = (*_SENT, *_IN_PLACE, "irecv", "P2POp")
        self.saved = {name: getattr(dist, name) for name in names}
        for name in names:
            setattr(dist, name, self._coarse(name, self.saved[name]))
        # P2POp accepts only the original functions.
        self.originals = {getattr(dist, name): self.saved[name] for name in ("isend", "irecv")}

    def __exit__(self, *_: object) -> None:
        for name, original in self.saved.items():
            setattr(dist, name, original)

    def _coarse(self, name: str, original: Any) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "P2POp":
                return self._message(original, *args, **kwargs)
            if self.depth or name == "irecv":  # a collective that calls another
                return original(*args, **kwargs)
            self.depth += 1
            try:
                if name in _IN_PLACE:
                    tensor = args[0] if args else kwargs["tensor"]
                    with torch.no_grad():
                        tensor.copy_(self.change(tensor))
                    return original(*args, **kwargs)
                given = list(args)
                place = _SENT[name]
                if len(given) > place:
                    given[place] = self._all(given[place])
                for each in _SENT_NAMES:
                    if each in kwargs:
                        kwargs[each] = self._all(kwargs[each])
                return original(*given, **kwargs)
            finally:
                self.depth -= 1

        return call

    def _message(self, original: Any, op: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        known = self.originals.get(op, op)
        sends = known is self.saved["isend"] and not self.depth
        return original(known, self.change(tensor) if sends else tensor, *args, **kwargs)

    def _all(self, sent: Any) -> Any:
        if isinstance(sent, list | tuple):
            return type(sent)(self._all(each) for each in sent)
        return self.change(sent) if isinstance(sent, torch.Tensor) else sent
