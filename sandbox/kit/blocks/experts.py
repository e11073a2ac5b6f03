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
they are routed; otherwise the host waits for counts, as the library's exchange does.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from sandbox.kit import cuda
from sandbox.kit.blocks import cuda_text
from sandbox.kit.blocks.columns import kernel_for as column_kernels
from sandbox.kit.blocks.columns import stream_barrier
from sandbox.kit.blocks.side_stream import beside, join, mark
from sandbox.kit.recorded import recorded
from sandbox.kit.symmetric_memory.team import Team

kernel_for = cuda.lazy(cuda_text("experts"))
BLOCKS, THREADS = 128, 512
WANTED = 528
"""Blocks of launches that do not wait for other ranks."""
SLOT = 1000
SENT_BESIDE = 16 << 20
"""From this number of bytes on, GPUs send a rank's tokens during products."""
ALL_GO = 0.75
"""If at least this part of the tokens is expected to go to a rank, all tokens are sent to all ranks."""
Projection = (
    tuple[torch.Tensor, torch.Tensor | None] | tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]
)
"""Weight [out, in] and bias [out], and the factors A [r, in] and B [out, r] of a branch (x Aᵀ) Bᵀ if there is one."""
Mlp = tuple[Projection, Projection, Projection]
"""gate H -> I, up H -> I, down I -> H."""


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


def gated_mlp(rows: torch.Tensor, mlp: Mlp, out: torch.Tensor, most: int = 0) -> None:
    """Writes down(silu(gate(x)) * up(x)) of rows [n, H] into out [n, H]. The activation is float32 and rounded once.

    most: rows that memory is taken for, at least n. Where n changes from call to call, torch keeps memory of one size at hand.
    """
    gate, up, down = mlp
    n = len(rows)
    hidden, factor = (rows.new_empty((max(most, n), weight.shape[0]))[:n] for weight in (gate[0], up[0]))
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
    write = write_layer if pulled or num_experts == 1 else write_layer.function
    write(x, (gate_weight, gate_bias), mlp, out, team, num_experts, top_k, pulled)
    return out


@recorded
def write_layer(
    x: torch.Tensor,
    router: tuple[torch.Tensor, torch.Tensor | None],
    mlp: Mlp,
    out: torch.Tensor,
    team: Team,
    experts: int,
    top_k: int,
    pulled: bool,
) -> None:
    """Writes the layer's output for x [T, H] to out, on GPUs. pulled: all ranks get all tokens; the host waits for nothing."""
    if experts == 1:  # chosen with probability 1
        gated_mlp(x, merged(mlp), out)
        return
    (tokens, width), kernels = x.shape, kernel_for(x.dtype)
    weights = x.new_empty((tokens, team.world), dtype=torch.float32)

    def routed(arrived: torch.Tensor | int) -> None:
        blocks = min(-(-tokens // (THREADS // 32)), BLOCKS)
        logits = F.linear(x, *router)
        kernels.route_tokens[blocks, THREADS](team.px, logits, x, arrived, weights, tokens, width, experts, top_k)

    places: torch.Tensor | int = 0
    if pulled:
        # One buffer each is enough: before a rank stores in `arrived`, all ranks have finished the MLP of the call
        # before, and before it writes `outputs`, all ranks have finished their sums.
        arrived = team.empty((team.world, *x.shape), x.dtype, "experts: arrived")
        outputs = team.empty((team.world, *x.shape), x.dtype, "experts: outputs")
        routed(arrived)
        gated_mlp(arrived.view(-1, width), merged(mlp), outputs.view(-1, width))
    else:
        column_kernels(cuda.unit_of(x))  # before the ranks exchange: see `cuda.lazy`
        if 1 - math.comb(experts - experts // team.world, top_k) / math.comb(experts, top_k) >= ALL_GO:
            all_rows = [x] * team.world
            outputs = _beside_products(x, all_rows, [tokens] * team.world, mlp, team, lambda: routed(0))
        else:
            routed(0)
            chosen = weights.t() != 0
            places = chosen.cumsum(1) - 1
            rows = x[chosen.nonzero()[:, 1]]
            counts = chosen.sum(1).tolist()
            received = [numbers[team.rank] for numbers in team.gather_numbers(*counts)]
            outputs = _beside_products(x, torch.split(rows, counts), received, mlp, team, lambda: None)
    words = tokens * -(-width * x.element_size() // 16)
    blocks = min(-(-words // THREADS), BLOCKS if pulled else WANTED)
    kernels.combine_owners[blocks, THREADS](team.px, outputs, weights, places, out, tokens, width, int(pulled))


def _beside_products(
    x: torch.Tensor,
    sent: Sequence[torch.Tensor],
    received: Sequence[int],
    mlp: Mlp,
    team: Team,
    meanwhile: Callable[[], None],
) -> torch.Tensor:
    """The results of all ranks' MLPs for rows of x [T, H]: [W (owners), T, H], symmetric.

    Each owner has as many rows there as were sent to it. sent: the rows for each member, up to T; received: how many
    come from each. meanwhile(): queues more work, after the rows have been queued.
    """
    rank, world, own = team.rank, team.world, sent[team.rank]
    half = len(own) // 2 if world > 1 else 0
    # One buffer each is enough: peers' MLPs have read `arrived` when their results have come back, and `returned` has been read
    # before this rank's first `stream_barrier` of the next call.
    arrived = team.empty((world, *x.shape), x.dtype, "experts: arrived beside")
    returned = team.empty((world, *x.shape), x.dtype, "experts: returned")
    there, back = team.peers(arrived), team.peers(returned)
    ready = []
    for away in range(1, world):
        owner = (rank + away) % world
        with beside():
            there[owner][rank, : len(sent[owner])].copy_(sent[owner])
            stream_barrier(arrived, team, SLOT)
            ready.append(mark())
    meanwhile()
    own_mlp = merged(mlp)  # after the copies have been queued
    if half:
        gated_mlp(own[:half], own_mlp, returned[rank, :half], len(x))
    made = []  # kept until the copies have read it
    for number, place in enumerate(ready):
        join(place)  # the rows of this source have arrived
        source = (rank - number - 1) % world
        rows = arrived[source, : received[source]]
        made.append(torch.empty_like(x)[: len(rows)])
        gated_mlp(rows, own_mlp, made[number], len(x))
        with beside():
            back[source][rank, : len(rows)].copy_(made[number])
            if number == world - 2:
                stream_barrier(returned, team, SLOT)
    gated_mlp(own[half:], own_mlp, returned[rank, half : len(own)], len(x))
    if ready:
        join()  # all results have come back
    return returned


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
