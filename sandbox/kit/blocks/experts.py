"""A mixture-of-experts layer whose experts are split over the ranks. All experts of a rank are the same MLP.

    from sandbox.kit import symm
    from sandbox.kit.blocks.experts import moe_layer

    mlp = (gate.weight, gate.bias), (up.weight, up.bias), (down.weight, down.bias)
    out = moe_layer(x, router_weight, router_bias, mlp, num_experts=64, top_k=8, team=symm.team(group))

A token is sent to a rank once, even if several of its experts are there, and their weights are added up.

Few tokens take two launches around one MLP: the first routes and stores rows at their owners, the second reads the results from
there. A token's place at a rank is its number: no counts are exchanged, nothing is sorted, and the host waits for nothing. The
cost: the places of tokens that were sent elsewhere are multiplied, too.

Many tokens are sent by copy engine. Meanwhile a rank multiplies one half of its own tokens, then those of its peers,
then its other half while its peers' results are sent back. If most tokens go to most ranks, all of them are sent before
they are routed; otherwise the host waits for counts, as the library's exchange does, but only when the first half is queued.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from sandbox.kit import cuda
from sandbox.kit.blocks import cuda_text
from sandbox.kit.blocks.columns import kernel_for as column_kernels
from sandbox.kit.blocks.columns import stream_barrier
from sandbox.kit.blocks.side_stream import beside, join, mark, read_early
from sandbox.kit.recorded import recorded
from sandbox.kit.symmetric_memory.team import Team

kernel_for = cuda.lazy(cuda_text("prefix") + cuda_text("experts"))
BLOCKS, THREADS = 128, 512
WANTED = 528
"""Blocks of launches that do not wait for other ranks."""
SLOT = 1000
SENT_BESIDE = 16 << 20
"""From this number of bytes on, GPUs send a rank's tokens during products."""
ALL_GO = 0.75
"""If at least this part of the tokens is expected to go to a rank, all tokens are sent to all ranks."""
STEP = 128
"""Counted rows are multiplied in multiples of this number: a library takes long to choose a kernel for each new size."""
Projection = (
    tuple[torch.Tensor, torch.Tensor | None] | tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]
)
"""Weight [out, in] and bias [out], and the factors A [r, in] and B [out, r] of a branch (x Aᵀ) Bᵀ if there is one."""
Mlp = tuple[Projection, Projection, Projection]
"""gate H -> I, up H -> I, down I -> H."""
Router = tuple[torch.Tensor, torch.Tensor | None]
"""Weight [E, H] and bias [E]."""
Choice = tuple[Team, int, int]
"""The ranks that share the experts, the number of experts E, and how many a token chooses."""


def project(rows: torch.Tensor, projection: Projection, out: torch.Tensor) -> None:
    """Writes rows [n, in] times the transposed weight, plus the bias and the branch, into out [n, out]."""
    weight, bias, *factors = projection
    if bias is None:
        torch.mm(rows, weight.t(), out=out)
    else:
        torch.addmm(bias, rows, weight.t(), out=out)
    if factors:
        a, b = factors
        out.addmm_(rows @ a.t(), b.t())


def activate(up: torch.Tensor, factor: torch.Tensor, z: torch.Tensor) -> None:
    """Writes silu(up) * factor to z, which may be `up`, all [rows, columns]; up and factor have the same row stride."""
    if not z.is_cuda:
        z.copy_(F.silu(up.float()) * factor)
        return
    blocks = min(max(-(-z.numel() * z.element_size() // (16 * THREADS)), 1), WANTED)
    addresses = up.data_ptr(), factor.data_ptr(), z.data_ptr()
    kernel_for(z.dtype).gate[blocks, THREADS](*addresses, *z.shape, up.stride(0), z.stride(0))


def merged(mlp: Mlp) -> Mlp:
    """An MLP whose branches are added to the weights in 16 bits, for many rows. In float32 they stay: short sums are exact."""
    whole = [(w, b, *f) if not f or w.itemsize > 2 else (torch.addmm(w, f[1], f[0]), b) for w, b, *f in mlp]
    return whole[0], whole[1], whole[2]  # type: ignore[return-value]


def gated_mlp(rows: torch.Tensor, mlp: Mlp, out: torch.Tensor) -> None:
    """Writes down(silu(gate(x)) * up(x)) of rows [n, H] into out [n, H]. The activation is float32 and rounded once."""
    if not len(rows):
        return
    gate, up, down = mlp
    hidden, factor = (rows.new_empty((len(rows), weight.shape[0])) for weight in (gate[0], up[0]))
    project(rows, gate, hidden)
    project(rows, up, factor)
    activate(hidden, factor, hidden)
    project(hidden, down, out)


def moe_layer(
    hidden_states: torch.Tensor,
    gate_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    mlp: Mlp,
    num_experts: int,
    top_k: int,
    team: Team,
    large: int = SENT_BESIDE,
) -> torch.Tensor:
    """The layer's output for hidden_states [.., H]: [T, H].

    For every token, it is the sum over its top_k experts of the router's probability times the MLP of the expert's
    owner. T is the same on all members. gate_weight [E, H], gate_bias [E] or None: the router of this rank's tokens;
    expert e belongs to member e // (E / W). mlp: this rank's. From `large` bytes on, tokens are sent during products.
    Collective; uses the team's signal slots 0..127 and SLOT with their own numbers (px_turn in px.cuh).
    """
    x = hidden_states.reshape(-1, hidden_states.shape[-1]).contiguous()
    out = torch.empty_like(x)
    if not x.numel():
        return out
    if not x.is_cuda and num_experts > 1:
        return _on_cpu(x, F.linear(x, gate_weight, gate_bias), num_experts, top_k, merged(mlp), team)
    pulled = team.world > 1 and x.nbytes < large
    choice = team, num_experts, top_k
    write = write_layer.function if not pulled and expected_part(*choice) < ALL_GO else write_layer
    write(x, (gate_weight, gate_bias), mlp, out, choice, pulled)
    return out


def expected_part(team: Team, experts: int, top_k: int) -> float:
    """The part of all tokens that goes to a rank, if all choices of experts are equally likely."""
    return 1 - math.comb(experts - experts // team.world, top_k) / math.comb(experts, top_k)


@recorded
def write_layer(x: torch.Tensor, router: Router, mlp: Mlp, out: torch.Tensor, choice: Choice, pulled: bool) -> None:
    """Writes the layer's output for x [T, H] to out, on GPUs. pulled: owners get tokens from the launch that routes them."""
    (tokens, width), (team, experts, _) = x.shape, choice
    if experts == 1:  # chosen with probability 1
        gated_mlp(x, merged(mlp), out)
        return
    kernels = kernel_for(x.dtype)  # before the ranks exchange: see `cuda.lazy`
    weights = x.new_empty((tokens, team.world), dtype=torch.float32)
    places: torch.Tensor | int = 0
    if pulled:
        # One buffer each is enough: before a rank stores in `arrived`, all ranks have finished the MLP of the call
        # before, and before it writes `outputs`, all ranks have finished their sums.
        arrived = team.empty((team.world, *x.shape), x.dtype, "experts: arrived")
        outputs = team.empty((team.world, *x.shape), x.dtype, "experts: outputs")
        route(x, router, arrived, weights, choice)
        gated_mlp(arrived.view(-1, width), merged(mlp), outputs.view(-1, width))
    else:
        outputs, places = _beside_products(x, router, mlp, weights, choice)
    words = tokens * -(-width * x.element_size() // 16)
    blocks = min(-(-words // THREADS), BLOCKS if pulled else WANTED)
    kernels.combine_owners[blocks, THREADS](team.px, outputs, weights, places, out, tokens, width, int(pulled))


def route(x: torch.Tensor, router: Router, arrived: torch.Tensor | int, weights: torch.Tensor, choice: Choice) -> None:
    """Writes the weights [T, W] of x [T, H] for the ranks, and stores tokens in `arrived` at their owners if it is not 0."""
    (team, *numbers), blocks = choice, min(-(-len(x) // (THREADS // 32)), BLOCKS)
    launch = kernel_for(x.dtype).route_tokens[blocks, THREADS]
    launch(team.px, F.linear(x, *router), x, arrived, weights, *x.shape, *numbers)


@recorded
def place(
    x: torch.Tensor, router: Router, weights: torch.Tensor, places: torch.Tensor, counts: torch.Tensor, choice: Choice
) -> None:
    """Writes the weights of x [T, H], the tokens' places among those for each rank [W, T], and how many these are [W]."""
    route(x, router, 0, weights, choice)
    kernel_for(x.dtype).place_tokens[len(places), THREADS](weights, places, counts, len(x))


def _beside_products(
    x: torch.Tensor, router: Router, mlp: Mlp, weights: torch.Tensor, choice: Choice
) -> tuple[torch.Tensor, torch.Tensor | int]:
    """Writes the weights [T, W] of x [T, H] for the ranks. Returns the results of all ranks' MLPs, symmetric: [W (owners), T, H].

    Also returns the tokens' rows there: [W, T], or 0 if each owner got all tokens.
    """
    column_kernels(cuda.unit_of(x))  # before the ranks exchange: see `cuda.lazy`
    (team, *_), tokens, ready, made = choice, len(x), [], []
    world, rank, part = team.world, team.rank, expected_part(*choice)
    # One buffer each is enough: peers' MLPs have read `arrived` when their results have come back, and `returned` has been read
    # before this rank's first `stream_barrier` of the next call.
    arrived = team.empty((world, *x.shape), x.dtype, "experts: arrived beside")
    returned = team.empty((world, *x.shape), x.dtype, "experts: returned")

    def send(rows: Sequence[torch.Tensor], after: torch.cuda.Event | None = None) -> None:
        for owner in team.order()[1:]:
            with beside(after):
                team.peers(arrived)[owner][rank, : len(rows[owner])].copy_(rows[owner])
                stream_barrier(arrived, team, SLOT)
                ready.append(mark())

    places: torch.Tensor | int = 0
    if part >= ALL_GO:
        own, first, received = x, tokens // 2 if world > 1 else 0, [tokens] * world
        send([x] * world)
        route(x, router, 0, weights, choice)
        own_mlp = merged(mlp)  # after the copies have been queued
        gated_mlp(own[:first], own_mlp, returned[rank, :first])
    else:
        places, counts = (x.new_empty(shape, dtype=torch.int64) for shape in ((world, tokens), world))
        place(x, router, weights, places, counts, choice)
        read, packed = read_early(counts), x.new_empty((world, *x.shape))
        kernel_for(x.dtype).pack_tokens[WANTED, THREADS](x, weights, places, packed, *x.shape, world)
        filled, own_mlp = torch.cuda.current_stream().record_event(), merged(mlp)
        own, first = packed[rank], _stepped(int(tokens * part / 2), tokens)
        gated_mlp(own[:first], own_mlp, returned[rank, :first])  # whether or not there are so many
        numbers = read()
        received = [others[rank] for others in team.gather_numbers(*numbers)]
        send([rows[:number] for rows, number in zip(packed, numbers, strict=True)], filled)
    for away, there in enumerate(ready, 1):
        join(there)  # the rows of this source have arrived
        source = (rank - away) % world
        rows = arrived[source, : _stepped(received[source], tokens)]
        made.append(torch.empty_like(x))  # kept until the copies have read it
        gated_mlp(rows, own_mlp, made[-1][: len(rows)])
        with beside():
            team.peers(returned)[source][rank, : received[source]].copy_(made[-1][: received[source]])
            if away == len(ready):
                stream_barrier(returned, team, SLOT)
    last = _stepped(received[rank], tokens)
    gated_mlp(own[first:last], own_mlp, returned[rank, first:last])
    if ready:
        join()  # all results have come back
    return returned, places


def _stepped(rows: int, most: int) -> int:
    return min(-(-rows // STEP) * STEP, most)


def _on_cpu(x: torch.Tensor, logits: torch.Tensor, experts: int, top_k: int, mlp: Mlp, team: Team) -> torch.Tensor:
    """Does the same on CPU ranks: owners read the tokens that chose them, and the tokens' ranks read the results."""
    likely, ids = torch.topk(F.softmax(logits, dim=-1), top_k, dim=-1)
    # For every token and rank, the sum of the token's top_k probabilities of the rank's experts.
    weights = torch.zeros(len(x), team.world).scatter_add_(1, ids // (experts // team.world), likely.float())
    tokens, shares = team.peers(team.stage(x, "experts: tokens")), team.peers(team.stage(weights, "experts: weights"))
    outputs = team.out((team.world, *x.shape), x.dtype, "experts: outputs", ring=2)
    results = team.peers(outputs)
    team.barrier()
    chosen = [share[:, team.rank].nonzero().flatten() for share in shares]
    rows = torch.cat([token[place] for token, place in zip(tokens, chosen, strict=True)])
    made = torch.empty_like(rows)
    gated_mlp(rows, mlp, made)
    parts = torch.split(made, [len(place) for place in chosen])
    for output, place, part in zip(outputs, chosen, parts, strict=True):
        output[place] = part
    team.barrier()
    total = torch.zeros(x.shape)
    for owner in team.order():
        place = weights[:, owner].nonzero().flatten()
        total[place] += weights[place, owner].unsqueeze(1) * results[owner][team.rank, place]
    return total.to(x.dtype)
