"""The blocks that work on every device: symmetric buffers with barriers, and the exchanges that houses are made of."""

import random

import torch
import torch.distributed as dist

from benchmarks.kit_soak.soak import Block, here, pattern, unequal
from sandbox.kit.blocks.clipping import clip
from sandbox.kit.blocks.quantisation import next_scale
from sandbox.kit.blocks.reshard import reshard
from sandbox.kit.blocks.rows import all_to_all_rows
from sandbox.kit.symmetric_memory.team import Team

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
SHAPES = ((1,), (7,), (5, 13), (64, 128), (3, 1001), (1000, 64), (40_000,))
"""Of symmetric buffers, which are kept for every shape."""
RESHAPED = ((1, 4, 2, 8), (2, 6, 4, 16), (1, 3, 5, 7), (2, 64, 8, 64), (1, 33, 16, 40))
MOST_ROWS, WIDTHS = 50, (1, 8, 33, 512)
LENGTHS = (1, 5, 257, 4096, 30_001)
CLOSE = 2.0**-7
"""Relative: gradients are rounded to their dtype after scaling."""


def staged_sum(team: Team, number: int, chance: random.Random) -> torch.Tensor:
    """Everybody reads everybody's staged tensor after one barrier; two buffers take turns."""
    shape, dtype, at = chance.choice(SHAPES), chance.choice(DTYPES), here()
    mine = team.stage(pattern(team.rank, number, shape, dtype, at))
    team.barrier()
    total = torch.zeros(shape, device=at)
    for peer in team.peers(mine):
        total += peer
    expected = torch.zeros(shape, device=at)
    for rank in range(team.world):
        expected += pattern(rank, number, shape, dtype, at)
    return unequal(total, expected)


def pushed(team: Team, number: int, chance: random.Random) -> torch.Tensor:
    """A root, which changes, writes into everybody's result; a ring of results, one barrier a call."""
    shape, dtype, at = chance.choice(SHAPES), chance.choice(DTYPES), here()
    root = chance.randrange(team.world)
    result = team.out(shape, dtype, "soak: pushed")
    if team.rank == root:
        source = pattern(root, number, shape, dtype, at)
        for peer in team.peers(result):
            peer.copy_(source)
    team.barrier()
    return unequal(result, pattern(root, number, shape, dtype, at))


def resharded(team: Team, number: int, chance: random.Random) -> torch.Tensor:
    """Ulysses' exchanges: split along one dimension becomes split along another."""
    shape, dtype, at = chance.choice(RESHAPED), chance.choice(DTYPES), here()
    scatter_dim, gather_dim = chance.choice(((2, 1), (1, 2), (1, 1), (2, 2)))
    found = reshard(pattern(team.rank, number, shape, dtype, at), scatter_dim, gather_dim, team)
    part = -(-shape[scatter_dim] // team.world)
    parts = []
    for rank in range(team.world):
        whole = pattern(rank, number, shape, dtype, at)
        padding = list(shape)
        padding[scatter_dim] = part * team.world - shape[scatter_dim]
        padded = torch.cat([whole, whole.new_zeros(padding)], scatter_dim)
        parts.append(padded.narrow(scatter_dim, team.rank * part, part))
    return unequal(found, torch.cat(parts, gather_dim))


def exchanged_rows(team: Team, number: int, chance: random.Random) -> torch.Tensor:
    """Rows to the ranks that want them, none at all now and then."""
    width, dtype, at = chance.choice(WIDTHS), chance.choice(DTYPES), here()
    counts = [
        [chance.choice((0, 0, 1, chance.randrange(MOST_ROWS))) for _ in range(team.world)]
        for _ in range(team.world)
    ]
    sent, received = counts[team.rank], [row[team.rank] for row in counts]
    rows = pattern(team.rank, number, (sum(sent), width), dtype, at)
    found = all_to_all_rows(rows, sent, received, team)
    parts = []
    for rank, row in enumerate(counts):
        whole = pattern(rank, number, (sum(row), width), dtype, at)
        parts.append(whole[sum(row[: team.rank]) : sum(row[: team.rank + 1])])
    return unequal(found, torch.cat(parts))


def clipped(team: Team, number: int, chance: random.Random) -> torch.Tensor:
    """The norm over all ranks' gradients, which is exact in whole numbers, and the scaled gradients."""
    lengths = [chance.choice(LENGTHS) for _ in range(chance.randrange(1, 6))]
    dtype, most, at = chance.choice(DTYPES), chance.choice((1.0, 1e9)), here()
    mine = [pattern(team.rank + i, number, (length,), dtype, at) for i, length in enumerate(lengths)]
    before = [gradient.clone() for gradient in mine]
    norm = clip(mine, most, 1.0, [dist.group.WORLD])
    total = torch.zeros((), dtype=torch.float64, device=at)
    for rank in range(team.world):
        for i, length in enumerate(lengths):
            total += pattern(rank + i, number, (length,), torch.float64, at).sum()
    factor = torch.clamp(most / total, max=1.0)
    wrong = (norm.double() - total).abs() > total * 2.0**-20
    count = wrong.sum()
    for gradient, drawn in zip(mine, before, strict=True):
        expected = drawn.double() * factor
        count = count + (~torch.isclose(gradient.double(), expected, rtol=CLOSE, atol=1e-6)).sum()
    return count


def scaled(team: Team, number: int, chance: random.Random) -> torch.Tensor:
    """History and scale of FP8 delayed scaling, against the same bits computed by torch."""
    length, dtype, at = chance.choice(LENGTHS), chance.choice(DTYPES), here()
    values = pattern(team.rank, number, (length,), dtype, at) - 100
    history = pattern(team.rank, number + 1, (16,), torch.bfloat16, at) * chance.choice((0, 1))
    rolled, scale = next_scale(values, history)
    expected = torch.cat((history[1:], values.abs().amax().to(torch.bfloat16)[None]))
    top = expected.amax().clamp(min=1e-12).float().reshape(1) / 448.0
    return unequal(rolled, expected) + unequal(scale, top)


BLOCKS: dict[str, Block] = {
    "staged_sum": staged_sum,
    "pushed": pushed,
    "resharded": resharded,
    "exchanged_rows": exchanged_rows,
    "clipped": clipped,
    "scaled": scaled,
}
