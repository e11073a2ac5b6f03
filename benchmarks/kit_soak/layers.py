"""The blocks that are layers of a model: attention, experts, and the cut of top-k and top-p."""

import random

import torch
import torch.distributed as dist

from benchmarks.kit_soak.soak import Block, Call, apart, here, pattern, unequal
from sandbox.kit.blocks.attention import attend_together
from sandbox.kit.blocks.experts import Mlp, moe_layer
from sandbox.kit.blocks.truncation import find_cut
from sandbox.kit.symmetric_memory.team import Team

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
ATTENDED = ((1, 1, 1, 1), (2, 9, 3, 7), (2, 24, 2, 64), (1, 150, 3, 40))
"""[B, S, H, d] of a rank: three with few keys, one whose heads are exchanged."""
TOKENS, EXPERTS_OF_A_RANK, HIDDEN = (1, 9, 70), (1, 2, 5), 24
ROWS, COLUMNS, FILTERS = (1, 5, 300), (1, 33, 500), ((0, 1.0), (0, 0.9), (0, 0.3), (1, 1.0), (7, 0.9), (100, 0.5))
"""Rows and a rank's columns of logits, and (top_k, top_p)."""
NO_CHANCE = -1e30
"""Replaces minus infinity, whose difference from itself is not a number."""
SURE = 1e-5
"""Share of a row's probability. A cut this close to an entry depends on rounding and is not compared."""


def _real(rank: int, number: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Values between -1 and 3.

    Their level changes from call to call, so that values of another call show in every mean.
    """
    return (pattern(rank, number, shape, torch.float32, here()) / 128 - 1 + number % 3).to(dtype)


def _room(expected: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tolerance for the rounding of products and results of a dtype."""
    return (1e-4 if dtype == torch.float32 else 2.0**-5) * expected.abs().amax()


def attended(team: Team, number: int, chance: random.Random) -> Call:
    """Attention over the rows of all ranks, causal or not, against a softmax of all scores in float64."""
    (batch, rows, heads, width), dtype = chance.choice(ATTENDED), chance.choice(DTYPES)
    causal, scale = chance.random() < 0.5, chance.choice((None, 0.5))
    parts = [_real(rank, number, (batch, rows, 3, heads, width), dtype) for rank in range(team.world)]
    query = parts[team.rank][:, :, 0].double()
    key, value = torch.cat(parts, dim=1)[:, :, 1:].double().unbind(2)
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * (width**-0.5 if scale is None else scale)
    places = torch.arange(team.world * rows, device=here())
    if causal:
        scores = scores.masked_fill(places > places[team.rank * rows :][:rows, None], -torch.inf)
    expected = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(dim=-1), value)
    mine, room = parts[team.rank], _room(expected, dtype)
    return lambda: apart(attend_together(mine, scale, causal, dist.group.WORLD), expected, room)


def _mlp(owner: int, number: int, width: int, dtype: torch.dtype, biased: bool) -> Mlp:
    gate, up = (_real(owner + place, number, (HIDDEN, width), dtype) / width for place in (10, 20))
    down = _real(owner + 30, number, (width, HIDDEN), dtype) / HIDDEN
    biases = [_real(owner + 40, number, (n,), dtype) if biased else None for n in (HIDDEN, HIDDEN, width)]
    return (gate, biases[0]), (up, biases[1]), (down, biases[2])


def _through(rows: torch.Tensor, mlp: Mlp) -> torch.Tensor:
    (gate, up, down) = [(weight.double(), None if bias is None else bias.double()) for weight, bias, *_ in mlp]
    linear = torch.nn.functional.linear
    return linear(torch.nn.functional.silu(linear(rows, *gate)) * linear(rows, *up), *down)


def routed(team: Team, number: int, chance: random.Random) -> Call:
    """A layer of experts in each of its ways. Logits are exact and all different, so that rounding chooses no expert."""
    tokens, dtype, at = chance.choice(TOKENS), chance.choice(DTYPES), here()
    experts = team.world * chance.choice(EXPERTS_OF_A_RANK)
    top_k, width = chance.randint(1, experts), experts + chance.choice((3, 16))
    biased, large = chance.random() < 0.5, chance.choice((0, 1 << 30))
    turned = torch.arange(experts, device=at) + 3 * torch.arange(tokens, device=at)[:, None] + team.rank + number
    logits = (turned % experts) / 4
    x = torch.cat((logits.to(dtype), _real(team.rank, number, (tokens, width - experts), dtype)), dim=1)
    router = torch.eye(experts, width, dtype=dtype, device=at)
    bias = torch.ones(experts, dtype=dtype, device=at) if biased else None
    mlps = [_mlp(owner, number, width, dtype, biased) for owner in range(team.world)]
    chosen, ids = logits.double().softmax(dim=1).topk(top_k, dim=1)
    weights = torch.zeros(tokens, team.world, dtype=torch.float64, device=at)
    weights.scatter_add_(1, ids // (experts // team.world), chosen.to(dtype).double())
    expected = torch.as_tensor(
        sum(weights[:, owner, None] * _through(x.double(), mlp) for owner, mlp in enumerate(mlps))
    )
    own, room = mlps[team.rank], _room(expected, dtype)
    return lambda: apart(moe_layer(x, router, bias, own, experts, top_k, team, large), expected, room)


def cut(team: Team, number: int, chance: random.Random) -> Call:
    """The cut of top-k, top-p, both or none, against the running sums of whole rows; many logits are equal."""
    rows, columns, dtype, at = chance.choice(ROWS), chance.choice(COLUMNS), chance.choice(DTYPES), here()
    top_k, top_p = chance.choice(FILTERS)
    parts = [pattern(rank, number, (rows, columns), torch.float32, at) / 16 for rank in range(team.world)]
    target = (torch.arange(rows, device=at) * 13 + number) % (team.world * columns)
    mine = parts[team.rank].to(dtype)
    logits = torch.cat(parts, dim=1).double()
    ascending, order = logits.sort(dim=1, stable=True)
    if top_k:
        edge = ascending[:, -min(top_k, ascending.shape[1]), None]
        ascending = ascending.masked_fill(ascending < edge, -torch.inf)
    running = ascending.softmax(dim=1).cumsum(dim=1)
    gone = (running <= 1 - top_p) & (ascending < torch.inf) if top_p < 1 else ascending == -torch.inf
    gone[:, -1] = False
    least = ascending.gather(1, gone.sum(dim=1, keepdim=True))
    own = order // columns == team.rank
    kept = ascending.masked_fill(gone, -torch.inf).logsumexp(dim=1)
    picked = logits.gather(1, target[:, None])[:, 0]
    unsure = ((running - (1 - top_p)).abs() < SURE).any(dim=1) & (top_p < 1)
    log_probability = torch.where(picked >= least[:, 0], picked - kept, -torch.inf)
    sure = ~unsure
    floats = torch.stack((kept, log_probability)).nan_to_num_(neginf=NO_CHANCE)
    room = 1e-5 + 1e-5 * floats.abs()
    dropped = (gone & own & (ascending == least)).sum(dim=1)

    def call() -> torch.Tensor:
        got = find_cut(mine, target, dist.group.WORLD, top_k, top_p)
        found = torch.stack((got.log_sum, got.log_probability)).nan_to_num_(nan=torch.nan, neginf=NO_CHANCE)
        wrong = (found - floats).abs_().le(room).logical_not_().any(dim=0)
        if top_k or top_p < 1:  # otherwise everything is kept, and `least` is below it
            wrong |= (got.least != least[:, 0]) | (got.dropped != dropped)
        return (wrong & sure).sum() + unequal(got.target, picked)

    return call


LAYERS: dict[str, Block] = {"attended": attended, "routed": routed, "cut": cut}
