"""The blocks that work on every device: symmetric buffers with barriers, and the exchanges that house kernels use."""

import random

import torch
import torch.distributed as dist

from benchmarks.kit_soak.soak import Call, apart, here, pattern, unequal
from sandbox.kit.blocks.attention import attend_together
from sandbox.kit.blocks.clipping import clip
from sandbox.kit.blocks.columns import SLOT, copy_columns, gathered_product, push_columns, stream_barrier
from sandbox.kit.blocks.experts import Mlp, moe_layer
from sandbox.kit.blocks.fan_out import fan_out
from sandbox.kit.blocks.perceptron import parameters_in, write_gradient
from sandbox.kit.blocks.quantisation import next_scale
from sandbox.kit.blocks.reshard import reshard
from sandbox.kit.blocks.rows import all_to_all_rows
from sandbox.kit.blocks.sharded_adam import Adam, step_slice
from sandbox.kit.blocks.sums import add_up, boxes
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
SHAPES = ((1,), (7,), (5, 13), (64, 128), (3, 1001), (1000, 64), (40_000,))
"""Shapes of symmetric buffers. A buffer is kept for every shape."""
RESHAPED = ((1, 4, 2, 8), (2, 6, 4, 16), (1, 3, 5, 7), (2, 64, 8, 64), (1, 33, 16, 40))
MOST_ROWS, WIDTHS = 50, (1, 8, 33, 512)
LENGTHS = (1, 5, 257, 4096, 30_001)
CLOSE = 2.0**-7
"""Relative tolerance, because gradients are rounded to their dtype after scaling."""


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


def staged_sum(team: Team, number: int, chance: random.Random) -> Call:
    """Every rank reads all ranks' staged tensors after one barrier; two buffers take turns."""
    shape, dtype, at = chance.choice(SHAPES), chance.choice(DTYPES), here()
    given = pattern(team.rank, number, shape, dtype, at)
    expected = torch.zeros(shape, device=at)
    for rank in range(team.world):
        expected += pattern(rank, number, shape, dtype, at)

    def call() -> torch.Tensor:
        mine = team.stage(given)
        team.barrier()
        total = torch.zeros(shape, device=at)
        for peer in team.peers(mine):
            total += peer
        return unequal(total, expected)

    return call


def pushed(team: Team, number: int, chance: random.Random) -> Call:
    """A root, which changes, writes into every rank's result; a ring of results, one barrier per call."""
    shape, dtype, at = chance.choice(SHAPES), chance.choice(DTYPES), here()
    root = chance.randrange(team.world)
    source = pattern(root, number, shape, dtype, at)

    def call() -> torch.Tensor:
        result = team.out(shape, dtype, "soak: pushed", ring=4)
        if team.rank == root:
            for peer in team.peers(result):
                peer.copy_(source)
        team.barrier()
        return unequal(result, source)

    return call


def resharded(team: Team, number: int, chance: random.Random) -> Call:
    """Ulysses' exchanges: split along one dimension becomes split along another."""
    shape, dtype, at = chance.choice(RESHAPED), chance.choice(DTYPES), here()
    scatter_dim, gather_dim = chance.choice(((2, 1), (1, 2), (1, 1), (2, 2)))
    mine = pattern(team.rank, number, shape, dtype, at)
    part = -(-shape[scatter_dim] // team.world)
    parts = []
    for rank in range(team.world):
        whole = pattern(rank, number, shape, dtype, at)
        padding = list(shape)
        padding[scatter_dim] = part * team.world - shape[scatter_dim]
        padded = torch.cat([whole, whole.new_zeros(padding)], scatter_dim)
        parts.append(padded.narrow(scatter_dim, team.rank * part, part))
    expected = torch.cat(parts, gather_dim)
    return lambda: unequal(reshard(mine, scatter_dim, gather_dim, team), expected)


def exchanged_rows(team: Team, number: int, chance: random.Random) -> Call:
    """Sends rows to ranks, sometimes none, in their order or selected by index.

    The lists of counts start at rank 0 or at the own rank.
    """
    width, dtype, at = chance.choice(WIDTHS), chance.choice((*DTYPES, torch.int64)), here()
    listed, rotated, world = chance.random() < 0.5, chance.random() < 0.5, team.world
    counts = [[chance.choice((0, 0, 1, chance.randrange(MOST_ROWS))) for _ in range(world)] for _ in range(world)]
    order = [[(rank + i) % world if rotated else i for i in range(world)] for rank in range(world)]
    sent = [[counts[rank][peer] for peer in order[rank]] for rank in range(world)]
    received = [counts[peer][team.rank] for peer in order[team.rank]]
    whole = [pattern(rank, number, (sum(row) + 3 * listed, width), dtype, at) for rank, row in enumerate(counts)]
    ids = [(torch.arange(sum(row), device=at) * 5 + number) % (sum(row) + 3) for row in counts] if listed else None
    own_ids = ids[team.rank] if ids else None
    parts = []
    for rank in order[team.rank]:
        place = order[rank].index(team.rank)
        chosen = whole[rank][ids[rank]] if ids else whole[rank]
        parts.append(chosen[sum(sent[rank][:place]) : sum(sent[rank][: place + 1])])
    mine, to_send, expected = whole[team.rank], sent[team.rank], torch.cat(parts)
    return lambda: unequal(all_to_all_rows(mine, to_send, received, team, own_ids, rotated), expected)


def summed(team: Team, number: int, chance: random.Random) -> Call:
    """The sum over the ranks, in place or not, in the boxes from some column on. Sums of whole numbers are exact."""
    length, dtype, at = chance.choice(LENGTHS), chance.choice(DTYPES), here()
    first, factor = chance.choice((0, 1, 8)), chance.choice((1.0, 0.5))
    x = pattern(team.rank, number, (length,), dtype, at)
    in_place = chance.random() < 0.5
    total = torch.zeros(length, device=at)
    for rank in range(team.world):
        total += pattern(rank, number, (length,), dtype, at)
    expected = (total * factor).to(dtype)

    def call() -> torch.Tensor:
        box = boxes(first + length, dtype, team, on_gpu=x.is_cuda)[:, first:]
        mine = x.clone() if in_place else x
        out = mine if in_place else torch.empty_like(x)
        add_up(mine, box, team, factor, out=out)
        return unequal(out, expected)

    return call


def clipped(team: Team, number: int, chance: random.Random) -> Call:
    """The norm over all ranks' gradients, which is exact in whole numbers, and the scaled gradients."""
    lengths = [chance.choice(LENGTHS) for _ in range(chance.randrange(1, 6))]
    dtype, most, at = chance.choice(DTYPES), chance.choice((1.0, 1e9)), here()
    before = [pattern(team.rank + i, number, (length,), dtype, at) for i, length in enumerate(lengths)]
    total = torch.zeros((), dtype=torch.float64, device=at)
    for rank in range(team.world):
        for i, length in enumerate(lengths):
            total += pattern(rank + i, number, (length,), torch.float64, at).sum()
    factor = torch.clamp(most / total, max=1.0)
    scaled_down = torch.cat(before).double() * factor
    room = 1e-6 + CLOSE * scaled_down.abs()
    norm_room = total * 2.0**-20

    def call() -> torch.Tensor:
        mine = [gradient.clone() for gradient in before]
        norm = clip(mine, most, 1.0, [dist.group.WORLD])
        return apart(norm, total, norm_room) + apart(torch.cat(mine), scaled_down, room)

    return call


def scaled(team: Team, number: int, chance: random.Random) -> Call:
    """History and scale of FP8 delayed scaling, against the same bits computed by torch."""
    length, dtype, at = chance.choice(LENGTHS), chance.choice(DTYPES), here()
    values = pattern(team.rank, number, (length,), dtype, at) - 100
    history = pattern(team.rank, number + 1, (16,), torch.bfloat16, at) * chance.choice((0, 1))
    expected = torch.cat((history[1:], values.abs().amax().to(torch.bfloat16)[None]))
    top = expected.amax().clamp(min=1e-12).float().reshape(1) / 448.0

    def call() -> torch.Tensor:
        rolled, scale = next_scale(values, history)
        return unequal(rolled, expected) + unequal(scale, top)

    return call


def joined(team: Team, number: int, chance: random.Random) -> Call:
    """Columns of all ranks side by side, by one launch or by copy engines in two parts."""
    rows, width, dtype, at = chance.choice((1, 7, 300)), chance.choice(WIDTHS), chance.choice(DTYPES), here()
    mine = pattern(team.rank, number, (rows, width), dtype, at)
    at_once = chance.random() < 0.5
    expected = torch.cat([pattern(rank, number, (rows, width), dtype, at) for rank in range(team.world)], 1)

    def call() -> torch.Tensor:
        result = team.out((rows, team.world * width), dtype, "soak: joined", ring=2)
        if at_once:
            push_columns(mine, result, team)
        else:
            copy_columns(mine[: rows // 2], result[: rows // 2], team)
            copy_columns(mine[rows // 2 :], result[rows // 2 :], team)
            stream_barrier(result, team, SLOT)
        return unequal(result, expected)

    return call


def multiplied(team: Team, number: int, chance: random.Random) -> Call:
    """A product whose left factor is gathered. Sums of small whole numbers are exact in float32."""
    rows, width, at = chance.choice((1, 7, 300)), chance.choice((1, 8, 33)), here()
    right = pattern(team.rank + 1, number, (team.world * width, 5), torch.float32, at) % 16
    whole = torch.cat([pattern(rank, number, (rows, width), torch.float32, at) for rank in range(team.world)], 1)
    mine = whole[:, team.rank * width : (team.rank + 1) * width]
    large, expected = chance.choice((0, 1 << 30)), whole @ right
    return lambda: unequal(gathered_product(mine, right, team, large), expected)


def fanned_out(team: Team, number: int, chance: random.Random) -> Call:
    """Rank 0's tensors in the flat buffers of all ranks."""
    lengths = [chance.choice(LENGTHS) for _ in range(chance.randrange(1, 4))]
    dtype, at = chance.choice(DTYPES), here()
    given = [pattern(team.rank + i, number, (n,), dtype, at) for i, n in enumerate(lengths)]
    expected = torch.cat([pattern(i, number, (n,), dtype, at) for i, n in enumerate(lengths)])

    def call() -> torch.Tensor:
        flat = team.out(sum(lengths), dtype, "soak: fanned out", ring=2)
        fan_out(given, flat, team)
        return unequal(flat, expected)

    return call


def stepped(team: Team, number: int, chance: random.Random) -> Call:
    """Adam on slices of unequal length with the mean of all gradients; weights go to all ranks, moments stay."""
    count, at = chance.choice(LENGTHS), here()
    share = -(-count // team.world)
    own_gradient = pattern(team.rank, number, (count,), torch.float32, at)
    mine = slice(min(team.rank * share, count), min((team.rank + 1) * share, count))
    old = [pattern(place, number, (count,), torch.float32, at) for place in (11, 12, 13)]
    adam = Adam(0.5, 0.9, 0.99, 1e-8, 1 + number % 5, chance.choice((0.0, 0.1)))
    old_of_slice = [tensor[mine] for tensor in old]
    total = torch.zeros(count, dtype=torch.float64, device=at)
    for rank in range(team.world):
        total += pattern(rank, number, (count,), torch.float64, at)
    weight, mean, square = (part.double() for part in old)
    mean = 0.9 * mean + 0.1 * total / team.world
    square = 0.99 * square + 0.01 * (total / team.world).square()
    step = 0.5 * mean / (1 - 0.9**adam.step) / ((square / (1 - 0.99**adam.step)).sqrt() + 1e-8)
    expected = torch.cat((weight - step - 0.5 * adam.weight_decay * weight, mean[mine], square[mine]))
    room = 1e-4 + 1e-4 * expected.abs()

    def call() -> torch.Tensor:
        gradient = team.empty(count, torch.float32, "soak: gradient")
        gradient.copy_(own_gradient)
        result = team.out(count, torch.float32, "soak: stepped", ring=2)
        moments = torch.empty_like(old_of_slice[1]), torch.empty_like(old_of_slice[2])
        step_slice(team, adam, gradient[mine], old_of_slice, (result[mine], *moments), (0,), 0, -(-share // 4))
        return apart(torch.cat((result, *moments)), expected, room)

    return call


def differentiated(team: Team, number: int, chance: random.Random) -> Call:
    """The gradient of a small perceptron, in pieces, against autograd. Hidden values are exact, so that no sign differs."""
    n, d_in, h, d_out = (chance.choice((1, 3, 8, 40)) for _ in range(4))
    rounds = [[(0, h // 3), (h // 2, h)], [(h // 3, h // 2)]]
    shapes, at = [(h, d_in), (h,), (d_out, h), (d_out,)], here()
    count = sum(torch.Size(shape).numel() for shape in shapes)
    flat = pattern(team.rank, number, (count,), torch.float32, at) / 128 - 1
    x = pattern(team.rank + 1, number, (n, d_in), torch.float32, at) / 128 - 1
    y = pattern(team.rank + 2, number, (n, d_out), torch.float32, at) / 128 - 1
    parameters = flat.clone()
    flat.requires_grad_()
    w1, b1, w2, b2 = parameters_in(flat, shapes)
    hidden = torch.nn.functional.linear(x, w1, b1).relu()
    loss = torch.nn.functional.mse_loss(torch.nn.functional.linear(hidden, w2, b2), y)
    (expected,) = torch.autograd.grad(loss, flat)
    room = 1e-5 * expected.abs().amax() + 1e-4 * expected.abs()

    def call() -> torch.Tensor:
        found = torch.empty_like(parameters)
        with torch.no_grad():
            write_gradient(x, y, parameters_in(parameters, shapes), parameters_in(found, shapes), rounds=rounds)
            return apart(found, expected, room)

    return call
