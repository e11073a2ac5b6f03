"""A second stream of higher priority, whose work runs at the same time as the products of the current stream.

    from sandbox.kit.blocks.side_stream import beside, join

    with beside():
        exchange(...)            # begins when all work that is queued so far has ended
    torch.mm(a, b, out=c)        # at the same time
    join()                       # work that is queued from here on waits for the exchange

Kernels on it get multiprocessors whenever blocks of the product end, so give them few blocks. Can be recorded in a CUDA graph.

    found = on_host(1)           # a launch gets found.data_ptr(), and writes there
    numbers = read_early(found)  # queued right behind this launch
    (size,) = numbers()          # waits only for that launch, while later ones still run
"""

import contextlib
import functools
from collections.abc import Callable, Iterator

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
    side.wait_event(after or torch.cuda.current_stream().record_event())
    with torch.cuda.stream(side):
        yield


def mark() -> torch.cuda.Event:
    """A place in the side stream, behind all work that is queued on it so far."""
    place: torch.cuda.Event = side_stream().record_event()
    return place


def join(place: torch.cuda.Event | None = None) -> None:
    """Makes the current stream wait for the side stream: for all work queued so far, or up to a place."""
    torch.cuda.current_stream().wait_event(place or mark())


def on_host(count: int) -> torch.Tensor:
    """Integers in the host's memory that launches can write to, each once, because it goes over PCIe."""
    return torch.empty(count, dtype=torch.int64, pin_memory=torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def read_early(x: torch.Tensor) -> Callable[[], list[int]]:
    """Returns a function that waits for the work that is queued so far, and lists the numbers of x: of `on_host`, or copied."""
    copied = x.to("cpu", non_blocking=True)  # torch takes pinned memory for it
    started: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    event = torch.cuda.current_stream().record_event() if started else None

    def listed() -> list[int]:
        if event is not None:
            event.synchronize()
        return list(copied.tolist())

    return listed
