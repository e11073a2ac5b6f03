"""An NCCL collective on memory that is registered as a symmetric window: NCCL's best case, copy-in included.

The argument is copied into registered memory on the clock, as symm.stage does it; the result is registered memory, one of two
buffers used in turn.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory

COLLECTIVE: str = "__COLLECTIVE__"
COPY_ENGINE: Any = "__COPY_ENGINE__"
"""Whether NCCL is asked to use no multiprocessors."""


def communicator() -> dist.ProcessGroup:
    """The process group: the world's, or one of the same ranks whose collectives run on copy engines."""
    if not COPY_ENGINE:
        return dist.distributed_c10d._get_default_group()
    nccl: Any = dist.ProcessGroupNCCL
    options = nccl.Options()
    try:
        options.config.cta_policy = nccl.NCCL_CTA_POLICY_ZERO
    except AttributeError:
        raise RuntimeError(
            "this torch cannot ask NCCL for copy engines: it takes NCCL 2.28 or newer"
        ) from None
    made: dist.ProcessGroup = dist.new_group(pg_options=options)
    return made


def registered(shapes: list[tuple[int, ...]], dtype: torch.dtype) -> list[torch.Tensor]:
    """Uninitialised tensors that every rank has registered with NCCL as windows (collective)."""
    dist.all_reduce(
        torch.zeros(1, device="cuda"), group=group
    )  # a window belongs to a communicator that exists
    try:
        if not windows:  # it cannot be chosen again once it was used
            symmetric_memory.set_backend("NCCL")
        tensors = [
            symmetric_memory.empty(shape, dtype=dtype, device=torch.device("cuda")) for shape in shapes
        ]
        windows.extend(symmetric_memory.rendezvous(tensor, group.group_name) for tensor in tensors)
    except (AttributeError, TypeError, RuntimeError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise RuntimeError(
            f"NCCL cannot register symmetric windows here (torch 2.9 and NCCL 2.27 or newer): {reason[0]}"
        ) from None
    return tensors


def communicate(given: torch.Tensor, result: torch.Tensor) -> None:
    """The collective, from one registered tensor to another; an all-reduce adds up in place."""
    if COLLECTIVE == "all_reduce":
        work = dist.all_reduce(result, group=group, async_op=COPY_ENGINE)
    elif COLLECTIVE == "all_gather":
        work = dist.all_gather_into_tensor(result, given, group=group, async_op=COPY_ENGINE)
    elif COLLECTIVE == "reduce_scatter":
        work = dist.reduce_scatter_tensor(result, given, group=group, async_op=COPY_ENGINE)
    else:
        work = dist.all_to_all_single(result, given, group=group, async_op=COPY_ENGINE)
    if work is not None:  # on a stream of its own: copies in batches are not for the default stream
        work.wait()


def result_shape(shape: torch.Size) -> tuple[int, ...]:
    """What the collective makes of a tensor of this shape."""
    world = dist.get_world_size()
    if COLLECTIVE == "all_gather":
        return (world, *shape)
    return (shape[0] // world, *shape[1:]) if COLLECTIVE == "reduce_scatter" else tuple(shape)


group = communicator()
windows: list[Any] = []
buffers: dict[tuple[torch.Size, torch.dtype], list[torch.Tensor]] = {}
calls = 0


def solution(tensor: torch.Tensor) -> torch.Tensor:
    global calls
    calls += 1
    key = tensor.shape, tensor.dtype
    if key not in buffers:
        given_shape = [] if COLLECTIVE == "all_reduce" else [tuple(tensor.shape)]
        buffers[key] = registered(2 * [result_shape(tensor.shape)] + given_shape, tensor.dtype)
    result = buffers[key][calls % 2]
    given = buffers[key][-1] if COLLECTIVE != "all_reduce" else result
    given.copy_(tensor)
    communicate(given, result)
    return result
