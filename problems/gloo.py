"""Collectives that NCCL has and gloo lacks, emulated on CPU ranks.

Baselines and kernels are written as for NCCL. On CPU ranks the harness calls `install()` once, before any of them runs;
with NCCL nothing is replaced. Each replacement moves the same bytes with gloo's own collectives:

- all_gather_into_tensor / reduce_scatter_tensor: NCCL only counts elements, gloo requires the concatenated shape.
- float8 dtypes: gloo does not support them; they are sent as uint8.
- all_gather with unequal list entries, all_to_all with unequal list entries: point-to-point messages.
- reduce: gloo uses the buffers of ranks other than the root as scratch; NCCL leaves them alone.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

_FLOAT8 = {torch.float8_e4m3fn, torch.float8_e5m2}
_installed = False


def _wire(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8) if tensor.dtype in _FLOAT8 else tensor


def install() -> None:
    """Wraps torch.distributed's functions for gloo; a second call does nothing."""
    global _installed
    if _installed:
        return
    _installed = True
    # Newer releases have other names for these two and warn about the older ones.
    for name, newer in (
        ("all_gather_into_tensor", "all_gather_single"),
        ("reduce_scatter_tensor", "reduce_scatter_single"),
    ):
        original = getattr(dist, newer, None) or getattr(dist, name)
        for known in (name, newer):
            if hasattr(dist, known):
                _replace(known, _flat_pair(original))
    plain = ("all_to_all_single", "broadcast", "scatter", "gather", "send", "recv", "isend", "irecv")
    others = {"all_gather": _all_gather, "all_to_all": _all_to_all, "reduce": _reduce}
    for name, make in (dict.fromkeys(plain, _wired) | others).items():
        _replace(name, make(getattr(dist, name)))


def _replace(name: str, wrapped: Callable[..., Any]) -> None:
    setattr(dist, name, wrapped)
    setattr(torch.distributed.distributed_c10d, name, wrapped)


def _flat_pair(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a collective to flatten output and input: only the number of elements matters, as with NCCL."""

    def call(output: torch.Tensor, input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not output.is_contiguous():
            raise ValueError("the output tensor must be contiguous")
        return original(_wire(output).view(-1), _wire(input.contiguous()).view(-1), *args, **kwargs)

    return call


def _wired(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a collective to send the tensors among its arguments, alone or in lists, as gloo can."""

    def on_wire(value: Any) -> Any:
        if isinstance(value, list):
            return [on_wire(each) for each in value]
        return _wire(value) if isinstance(value, torch.Tensor) else value

    def call(*args: Any, **kwargs: Any) -> Any:
        return original(*map(on_wire, args), **{name: on_wire(value) for name, value in kwargs.items()})

    return call


def _exchange(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Any) -> None:
    """Sets outputs[s] to rank s's inputs[r], r being this rank in the group; entries may be empty or unequal."""
    group = group or dist.group.WORLD
    me, size = dist.get_rank(group), dist.get_world_size(group)
    outputs[me].copy_(inputs[me])
    pending = []
    for step in range(1, size):
        to, source = (me + step) % size, (me - step) % size
        if inputs[to].numel():
            pending.append(
                dist.P2POp(dist.isend, _wire(inputs[to].contiguous()), dist.get_global_rank(group, to), group)
            )
        if outputs[source].numel():
            pending.append(dist.P2POp(dist.irecv, _wire(outputs[source]), dist.get_global_rank(group, source), group))
    if pending:
        for work in dist.batch_isend_irecv(pending):
            work.wait()


class _Done:
    """The work handle of an asynchronous call that has already finished."""

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


def _all_gather(original: Callable[..., Any]) -> Callable[..., Any]:
    wired = _wired(original)

    def call(tensor_list: list[torch.Tensor], tensor: torch.Tensor, group: Any = None, async_op: bool = False) -> Any:
        # The receive list has the same shapes on every rank, so all ranks take the same branch.
        if all(each.shape == tensor_list[0].shape for each in tensor_list):
            return wired(tensor_list, tensor, group=group, async_op=async_op)
        _exchange(tensor_list, [tensor] * len(tensor_list), group)
        return _Done() if async_op else None

    return call


def _all_to_all(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Any = None, async_op: bool = False) -> Any:
        # The lists of other ranks may be unequal without a sign here, so all ranks take the path that handles both.
        _exchange(outputs, inputs, group)
        return _Done() if async_op else None

    return call


def _reduce(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(tensor: torch.Tensor, dst: int | None = None, *args: Any, **kwargs: Any) -> Any:
        root = kwargs.get("group_dst", dst)
        if root != dist.get_rank():
            tensor = tensor.clone()
        return original(tensor, dst, *args, **kwargs)

    return call
