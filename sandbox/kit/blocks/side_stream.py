"""A second stream of higher priority, whose work runs at the same time as the products of the current stream.

    from sandbox.kit.blocks.side_stream import beside, join

    with beside():
        exchange(...)            # begins when all work that is queued so far has ended
    torch.mm(a, b, out=c)        # at the same time
    join()                       # work that is queued from here on waits for the exchange

Kernels on it get multiprocessors whenever blocks of the product end, so give them few blocks. Can be recorded in a CUDA graph.

    numbers = read_early(found)  # queued right behind the launch that counts
    (size,) = numbers()          # waits only for that launch, while later ones still run
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch


@functools.cache
def side_stream() -> torch.cuda.Stream:
    """This process's side stream."""
    return torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def beside(after: torch.cuda.Event | None = None) -> Iterator[None]:
    """Within the block, queues work on the side stream, behind all work that is queued on the current stream.

    after: an event of the current stream; then only work that was queued before it is waited for.
    """
    side = side_stream()
    if after is None:
        side.wait_stream(torch.cuda.current_stream())
    else:
        side.wait_event(after)
    with torch.cuda.stream(side):
        yield


def mark() -> torch.cuda.Event:
    """A place in the side stream, behind all work that is queued on it so far."""
    place: torch.cuda.Event = side_stream().record_event()
    return place


def join(place: torch.cuda.Event | None = None) -> None:
    """Makes the current stream wait for the side stream: for all work queued so far, or up to a place."""
    here = torch.cuda.current_stream()
    if place is None:
        here.wait_stream(side_stream())
    else:
        here.wait_event(place)


def read_early(x: torch.Tensor) -> Callable[[], list[Any]]:
    """Queues a copy of x to pinned host memory; the function that it returns waits for that copy and lists the numbers."""
    if not x.is_cuda:
        return x.tolist
    copied = x.to("cpu", non_blocking=True)  # torch takes pinned memory for it
    event = torch.cuda.current_stream(x.device).record_event()

    def listed() -> list[Any]:
        event.synchronize()
        return list(copied.tolist())

    return listed
