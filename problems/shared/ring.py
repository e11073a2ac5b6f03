"""Attention over a sequence that is cut into equal pieces, one a rank, whose keys and values travel round a ring.

Rank c of the group holds rows c·S .. c·S + S - 1. Tensors are [B, S, H, d]; inside, everything is [B, H, S, d] and at least
float32.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from problems.setting import RankSetting


class Shift:
    """Tensors on their way to the next rank of the group, and those arriving from the one before."""

    def __init__(self, tensors: Sequence[torch.Tensor], group: dist.ProcessGroup | None) -> None:
        group = group or dist.group.WORLD
        assert group is not None
        me, size = dist.get_rank(group), dist.get_world_size(group)
        to = dist.get_global_rank(group, (me + 1) % size)
        source = dist.get_global_rank(group, (me - 1) % size)
        self._sent = [tensor.contiguous() for tensor in tensors]
        self._received = [torch.empty_like(tensor) for tensor in self._sent]
        operations = [dist.P2POp(dist.isend, tensor, to, group) for tensor in self._sent]
        operations += [dist.P2POp(dist.irecv, tensor, source, group) for tensor in self._received]
        self._pending: list[Any] = dist.batch_isend_irecv(operations)

    def arrived(self) -> list[torch.Tensor]:
        """Waits; the tensors of the rank before."""
        for work in self._pending:
            work.wait()
        return self._received


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """[B, S, H, d] -> [B, H, S, d] in float32, or float64 where it is that."""
    return tensor.transpose(1, 2).to(torch.promote_types(tensor.dtype, torch.float32))


def scores(query: torch.Tensor, key: torch.Tensor, scale: float, diagonal: bool) -> torch.Tensor:
    """scale · <query, key> [B, H, Sq, Sk]; on the diagonal block later keys are -inf."""
    products = (query @ key.transpose(-1, -2)).mul_(scale)
    if diagonal:
        later = torch.ones(products.shape[-2:], dtype=torch.bool, device=products.device).triu_(1)
        products.masked_fill_(later, float("-inf"))
    return products


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, diagonal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax attention on one block, all [B, H, S, d]: (output, log-sum-exp [B, H, S, 1])."""
    products = scores(query, key, scale, diagonal)
    lse = torch.logsumexp(products, dim=-1, keepdim=True)
    return products.sub_(lse).exp_() @ value, lse


def ring_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool, group: dist.ProcessGroup | None
) -> torch.Tensor:
    """Attention of the local queries over the keys of all ranks; [B, S, H, d] each, rounded to q's dtype once at the end."""
    me, size = dist.get_rank(group), dist.get_world_size(group)
    query = widen(q)
    output = lse = None
    for step in range(size):
        shift = Shift((k, v), group) if step + 1 < size else None
        block = (me - step) % size
        if not causal or block <= me:
            block_output, block_lse = attend(query, widen(k), widen(v), scale, causal and block == me)
            if output is None or lse is None:
                output, lse = block_output, block_lse
            else:
                output = output - torch.sigmoid(block_lse - lse) * (output - block_output)
                lse = lse - functional.logsigmoid(lse - block_lse)
        if shift:
            k, v = shift.arrived()
    assert output is not None
    return output.transpose(1, 2).to(q.dtype).contiguous()


def block_gradients(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    delta: torch.Tensor,
    lse: torch.Tensor,
    scale: float,
    diagonal: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dq, dk, dv) of one block, all [B, H, S, d]; delta = <grad, output> and lse are [B, H, S, 1]."""
    weights = scores(query, key, scale, diagonal).sub_(lse).exp_()
    grad_scores = (grad @ value.transpose(-1, -2)).sub_(delta).mul_(weights).mul_(scale)
    return grad_scores @ key, grad_scores.transpose(-1, -2) @ query, weights.transpose(-1, -2) @ grad


def ring_attention_backward(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    output: torch.Tensor,
    lse: torch.Tensor,
    scale: float,
    causal: bool,
    group: dist.ProcessGroup | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dq, dk, dv) [B, S, H, d], at least float32, from the output [B, S, H, d] and log-sum-exp [B, H, S] as given.

    The gradients of keys and values follow their block round the ring and come home with the last step.
    """
    me, size = dist.get_rank(group), dist.get_world_size(group)
    query, upstream = widen(q), widen(grad)
    delta = (upstream * widen(output)).sum(dim=-1, keepdim=True)
    grad_query = torch.zeros_like(query)
    gathered: list[torch.Tensor] = []
    homeward: Shift | None = None
    for step in range(size):
        onward = Shift((k, v), group) if step + 1 < size else None
        block = (me - step) % size
        found: list[torch.Tensor] = []
        if not causal or block <= me:
            own, *found = block_gradients(
                upstream, query, widen(k), widen(v), delta, lse[..., None], scale, causal and block == me
            )
            grad_query += own
        gathered = homeward.arrived() if homeward else []
        gathered = [a + b for a, b in zip(gathered, found, strict=True)] if gathered and found else gathered or found
        if size > 1:
            homeward = Shift(gathered, group)
        if onward:
            k, v = onward.arrived()
    if homeward:
        gathered = homeward.arrived()
    return grad_query.transpose(1, 2), gathered[0].transpose(1, 2), gathered[1].transpose(1, 2)


def attention_layer(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    heads: int,
    softmax_scale: float | None,
    causal: bool,
    group: dist.ProcessGroup | None,
) -> torch.Tensor:
    """hidden_states [B, S, D] -> [B, S, D] through QKV projection, ring attention with `heads` heads, output projection.

    w_qkv [3·heads·d, D] with rows ordered (q | k | v, head, d), w_o [D, heads·d]; no biases.
    """
    batch, rows, _ = hidden_states.shape
    dim = w_qkv.shape[0] // (3 * heads)
    qkv = functional.linear(hidden_states, w_qkv).view(batch, rows, 3, heads, dim)
    scale = dim**-0.5 if softmax_scale is None else softmax_scale
    query, key, value = qkv.unbind(2)
    context = ring_attention(query, key, value, scale, causal, group)
    return functional.linear(context.view(batch, rows, heads * dim), w_o)


def draw_mode(setting: RankSetting, causal: bool = True) -> torch.Tensor:
    """[2] int64 (causal, whether a softmax scale is given): upstream's `causal` and no scale, else by trial.

    Three trials of four are causal, one of three gives a scale.
    """
    scaled = False
    if not setting.upstream_arguments:
        causal, scaled = setting.trial % 4 != 3, setting.trial % 3 == 2
    return torch.tensor([int(causal), int(scaled)], dtype=torch.int64, device=setting.device)


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, float | None]:
    """The scale and the mask of a drawn mode; a given scale is 1.5 times the usual d^-1/2."""
    causal, scaled = tensors["mode"].tolist()
    return {"softmax_scale": 1.5 * setting.sizes.d**-0.5 if scaled else None, "causal": bool(causal)}


def draw_projections(setting: RankSetting, kinds: int, index: int, heads: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(w_qkv [3·heads·d, D], w_o [D, heads·d]) of kind `index` out of `kinds`, drawn alike on every rank.

    Upstream: 0.02 N(0, 1). Meaningful: N(0, 1)/sqrt(fan_in) with the rows of queries and keys doubled, so that attention is
    far from uniform.
    """
    s = setting.sizes
    inner = heads * s.d
    w_qkv = setting.randn(kinds, 3, inner, s.D, shared=True)[index]
    w_o = setting.randn(kinds, s.D, inner, shared=True)[index]
    if setting.distribution == "upstream":
        w_qkv, w_o = w_qkv * 0.02, w_o * 0.02
    else:
        w_qkv, w_o = w_qkv * s.D**-0.5, w_o * inner**-0.5
        w_qkv[:2] *= 2
    return w_qkv.view(3 * inner, s.D).contiguous(), w_o.contiguous()
