"""A second stream, of higher priority: what is queued on it runs beside the products of the current stream.

    from sandbox.kit.blocks.side_stream import beside, join

    with beside():
        exchange(...)            # begins when all that is queued so far has ended
    torch.mm(a, b, out=c)        # at the same time
    join()                       # what is queued from here on waits for the exchange

Kernels on it get multiprocessors whenever blocks of the product end, so give them few blocks. Can be recorded in a CUDA graph.
"""

import contextlib
import functools
from collections.abc import Iterator

import torch


@functools.cache
def side_stream() -> torch.cuda.Stream:
    """This process's side stream."""
    return torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def beside() -> Iterator[None]:
    """Queues on the side stream, behind all that is queued on the current stream."""
    side = side_stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield


def mark() -> torch.cuda.Event:
    """A place in the side stream: behind all that is queued on it so far."""
    place: torch.cuda.Event = side_stream().record_event()
    return place


def join(place: torch.cuda.Event | None = None) -> None:
    """The current stream waits for the side stream, as far as it is queued so far or up to a place."""
    here = torch.cuda.current_stream()
    if place is None:
        here.wait_stream(side_stream())
    else:
        here.wait_event(place)
