"""Measures the time of a transfer between every two ranks, by each way that the device offers.

Two ranks move a block to each other in turns: a rank moves when the other's block and its signal have arrived. So a
time is that of one block and its signal, in one direction, on links that nothing else uses. It is the mean over a
series of turns, in the fastest of a few series.
"""

from collections.abc import Callable
from functools import partial
from itertools import combinations

import torch
import torch.distributed as dist

from sandbox.kit.errors import KitError
from sandbox.protocol.result import PairTimes, Transfers
from sandbox.rank.devices.device import Device
from sandbox.rank.devices.transfer_ways import Pair, Way, Ways

SIZES = [2 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20, 256 << 20]
SERIES = 5
SERIES_S = 2e-3
"""Approximate time of a series, unless two blocks take longer."""
MOST_TURNS = 40


def measure(device: Device, backends: bool = False) -> Transfers:
    """The times of the pairs whose first rank is this one (collective).

    backends: measure the ways of other libraries. The result has the reason for each that is missing.

    Raises:
        CompileError: a way's kernels cannot be compiled here.
        RuntimeError: a way has moved wrong data.
    """
    from sandbox.kit import symm

    if dist.get_world_size() == 1:
        return Transfers([], [])
    offered = device.transfer_ways()
    ways, absent = _made(offered.backends) if backends else (offered.ways, {})
    shared = symm.empty((offered.largest,), torch.uint8, tag="calibration")
    own = torch.empty_like(shared)
    sizes = [size for size in SIZES if size <= offered.largest]
    rank = dist.get_rank()
    found = []
    for ranks in combinations(range(dist.get_world_size()), 2):
        dist.barrier()
        if rank in ranks:
            pair = Pair(symm.sub(ranks), ranks, rank, own, shared)
            us = {name: [_us(name, way, offered, pair, size, device) for size in sizes] for name, way in ways.items()}
            if pair.first:
                found.append(PairTimes(ranks, us))
    dist.barrier()
    return Transfers(sizes, found, absent)


def _made(makers: dict[str, Callable[[], Way]]) -> tuple[dict[str, Way], dict[str, str]]:
    """Makes the ways. Returns them, and the reasons why others are missing."""
    ways, absent = {}, {}
    for name, make in makers.items():
        try:
            ways[name] = make()
        except (ImportError, KitError) as error:
            absent[name] = str(error)
    return ways, absent


def _us(name: str, way: Way, offered: Ways, pair: Pair, nbytes: int, device: Device) -> float:
    """Microseconds of one block; any number on the second rank."""
    source, target = (pair.shared, pair.own) if way.pulls else (pair.own, pair.shared if way.into is None else way.into)
    source[:nbytes].fill_(pair.rank + 1)
    target[:nbytes].zero_()
    device.synchronize()
    pair.team.host_barrier()
    about = 5e-6 + nbytes / 2e11
    turns = min(MOST_TURNS, max(2, 2 * round(SERIES_S / about / 2)))  # even: the first rank gets the last signal
    best = min(offered.seconds(partial(way.run, pair, nbytes, turns), pair) for _ in range(SERIES))
    device.synchronize()
    pair.team.host_barrier()
    if not bool((target[:nbytes] == pair.peer + 1).all()):
        raise RuntimeError(f"{name} has moved wrong data between ranks {pair.ranks[0]} and {pair.ranks[1]}")
    return round(best / turns * 1e6, 3)
