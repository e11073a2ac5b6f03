"""An NCCL collective on memory that is registered as a symmetric window, with the copy into it.

The argument is copied into registered memory within the call, as symm.stage does. The result is one of two registered buffers.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory

COLLECTIVE: str = "__COLLECTIVE__"
COPY_ENGINE: Any = "__COPY_ENGINE__"
"""Whether NCCL uses copy engines in place of multiprocessors."""


def communicator() -> dist.ProcessGroup:
    """The process group: the world's, or one of the same ranks that uses copy engines."""
    if not COPY_ENGINE:
        return dist.distributed_c10d._get_default_group()
    nccl: Any = dist.ProcessGroupNCCL
    options = nccl.Options()
    try:
        options.config.cta_policy = nccl.NCCL_CTA_POLICY_ZERO
    except AttributeError:
        raise RuntimeError("this torch cannot ask NCCL for copy engines: it takes NCCL 2.28 or newer") from None
    made: dist.ProcessGroup = dist.new_group(pg_options=options)
    return made


def registered(shapes: list[tuple[int, ...]], dtype: torch.dtype) -> list[torch.Tensor]:
    """New uninitialised tensors, registered with NCCL as windows (collective)."""
    dist.all_reduce(torch.zeros(1, device="cuda"), group=group)  # a window needs an existing communicator
    try:
        if not windows:  # the allocator cannot be changed after its use
            symmetric_memory.set_backend("NCCL")
        tensors = [symmetric_memory.empty(shape, dtype=dtype, device=torch.device("cuda")) for shape in shapes]
        windows.extend(symmetric_memory.rendezvous(tensor, group.group_name) for tensor in tensors)
    except (AttributeError, TypeError, RuntimeError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise RuntimeError(
            f"NCCL cannot register symmetric windows here (torch 2.9 and NCCL 2.27 or newer): {reason[0]}"
        ) from None
    return tensors


def communicate(given: torch.Tensor, result: torch.Tensor) -> None:
    """Runs the collective between registered tensors; an all-reduce works in place."""
    if COLLECTIVE == "all_reduce":
        work = dist.all_reduce(result, group=group, async_op=COPY_ENGINE)
    elif COLLECTIVE == "all_gather":
        work = dist.all_gather_into_tensor(result, given, group=group, async_op=COPY_ENGINE)
    elif COLLECTIVE == "reduce_scatter":
        work = dist.reduce_scatter_tensor(result, given, group=group, async_op=COPY_ENGINE)
    else:
        work = dist.all_to_all_single(result, given, group=group, async_op=COPY_ENGINE)
    if work is not None:  # on its own stream, because batched copies do not run on the default stream
        work.wait()


def result_shape(shape: torch.Size) -> tuple[int, ...]:
    """The result's shape for an argument of this shape."""
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
