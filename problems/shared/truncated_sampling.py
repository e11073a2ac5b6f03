"""Log-probabilities under top-k / top-p filtering with vocabulary-parallel logits: filter, exchange, inputs."""

from collections.abc import Iterator

import torch
import torch.distributed as dist

from problems.setting import RankSetting, SizesRefused

COMBINATIONS: tuple[tuple[bool, bool], ...] = ((True, True), (True, False), (False, True), (False, False))
"""(top_k on, top_p on) by trial."""
TOP_P = 0.9
MARGIN = 0.01


def filter_logits(logits: torch.Tensor, top_k: int | None, top_p: float | None) -> torch.Tensor:
    """Whole rows [n, V] with everything outside the kept set at -inf.

    top_k keeps all values not below the k-th largest. top_p then drops the low tail: in ascending order an entry stays if
    the running sum of the run-dtype softmax, rounded to that dtype once per prefix, exceeds 1 - top_p; the largest always
    stays. None, 0 and 1 respectively switch a filter off.
    """
    if top_k is not None and top_k > 0:
        smallest = logits.topk(min(top_k, logits.shape[-1]), dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, float("-inf"))
    if top_p is None or top_p >= 1:
        return logits
    ascending, order = logits.sort(dim=-1)
    wide = torch.promote_types(logits.dtype, torch.float32)
    running = ascending.softmax(dim=-1).cumsum(dim=-1, dtype=wide).to(logits.dtype)
    threshold = torch.tensor(1 - top_p, dtype=logits.dtype, device=logits.device)
    dropped = running <= threshold
    dropped[:, -1] = False
    return torch.scatter(logits, -1, order, ascending.masked_fill_(dropped, float("-inf")))


def rows_of_own_tokens(local: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """local [m, V/W], a vocabulary shard of m tokens -> [m/W, V], whole rows of this rank's share of the tokens."""
    world = dist.get_world_size(group)
    tokens, columns = local.shape
    received = local.new_empty(world, tokens // world, columns)
    dist.all_to_all_single(received, local.contiguous(), group=group)
    return received.transpose(0, 1).reshape(tokens // world, world * columns)


def columns_of_all_tokens(rows: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """The way back: rows [m/W, V] of this rank's tokens -> [m, V/W], this rank's vocabulary shard of all m tokens."""
    world = dist.get_world_size(group)
    tokens, vocabulary = rows.shape
    shards = rows.view(tokens, world, vocabulary // world).transpose(0, 1).contiguous()
    received = torch.empty_like(shards)
    dist.all_to_all_single(received, shards, group=group)
    return received.view(world * tokens, vocabulary // world)


def own_share(flat: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """flat [m] -> this rank's [m/W] in the partition of `rows_of_own_tokens`."""
    return flat.view(dist.get_world_size(group), -1)[dist.get_rank(group)]


def log_probabilities(
    local: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup | None, top_k: int | None, top_p: float | None
) -> torch.Tensor:
    """local [m, V/W], target [m] int64 -> [m]: log p(target) under the filter, -inf outside it; at least float32."""
    kept = filter_logits(rows_of_own_tokens(local, group), top_k, top_p)
    wide = torch.promote_types(kept.dtype, torch.float32)
    logp = kept.to(wide).log_softmax(dim=-1).gather(-1, own_share(target, group)[:, None])
    gathered = logp.new_empty(target.shape)
    dist.all_gather_into_tensor(gathered, logp, group=group)
    return gathered


def require_shares(tokens: int, chunk: int, group: dist.ProcessGroup | None) -> None:
    """Raises ValueError unless the world divides the tokens and those of a whole chunk."""
    world = dist.get_world_size(group)
    if tokens % world or chunk % world:
        raise ValueError(f"{tokens} tokens in chunks of {chunk} cannot be shared equally by {world} ranks")


def chunks(tokens: int, chunk: int) -> Iterator[slice]:
    """Consecutive slices of at most `chunk` flat tokens."""
    return (slice(first, min(first + chunk, tokens)) for first in range(0, tokens, chunk))


def draw(setting: RankSetting, stride: int, offset: int, flat: bool = False) -> dict[str, torch.Tensor]:
    """vocab_parallel_logits [B, S, V/W], own; target [B, S] int64 and the mode [2] (top_k or 0, top_p on), the same everywhere.

    Upstream: N(0, 1) with 8 added at the target, targets (stride i + offset + trial) mod V, k = K and p = 0.9. Meaningful:
    N(0, 2²), and if `flat` in half of the trials without p N(0, 1/4²). Nine targets of ten are drawn from the filtered
    distribution and one uniformly; filters are on and off by trial. No target, and with k on no entry at all, lies so close to
    the edge of the top-p set that rounding could decide about it.
    """
    s = setting.sizes
    if s.V % setting.world:
        raise SizesRefused(f"a vocabulary of {s.V} cannot be cut into {setting.world} equal shards")
    tokens, mine = (s.B * s.S, slice(setting.rank * s.V // setting.world, (setting.rank + 1) * s.V // setting.world))
    logits = setting.randn(tokens, s.V, shared=True)
    if setting.distribution == "upstream":
        place = torch.arange(tokens, device=setting.device)
        target = (stride * place + offset + setting.trial) % s.V
        logits.scatter_add_(1, target[:, None], torch.full_like(logits[:, :1], 8))
        use_k, use_p = COMBINATIONS[0]
    else:
        use_k, use_p = COMBINATIONS[0 if setting.upstream_arguments else setting.trial % 4]
        # In flat rows every entry counts alike. The edge of a top-p set would be unclear there.
        logits *= 0.25 if flat and not use_p and setting.trial % 8 >= 4 else 2
        if use_k and use_p:
            logits = _with_clear_cut(logits, s.K, setting)
        target = _targets(logits, s.K if use_k else s.V, TOP_P if use_p else 1.0, setting)
    mode = torch.tensor([s.K if use_k else 0, int(use_p)], dtype=torch.int64, device=setting.device)
    return {
        "vocab_parallel_logits": logits[:, mine].reshape(s.B, s.S, -1).clone(),
        "target": target.view(s.B, s.S),
        "mode": mode,
    }


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, int | float | None]:
    """The filters of a drawn mode."""
    top_k, use_p = tensors["mode"].tolist()
    return {"top_k": top_k or None, "top_p": TOP_P if use_p else 1.0}


def draw_chunk(setting: RankSetting) -> torch.Tensor:
    """[] int64: the sizes' own chunk as upstream has it; else by trial that, one leaving a short last chunk, or one above S."""
    s = setting.sizes
    choices = [s.chunk]
    if not setting.upstream_arguments:
        short = max(setting.world, (2 * s.S // 3) // setting.world * setting.world)
        choices += [short, s.S + setting.world]
    return torch.tensor(choices[setting.trial % len(choices)], dtype=torch.int64, device=setting.device)


def _with_clear_cut(logits: torch.Tensor, k: int, setting: RankSetting) -> torch.Tensor:
    """logits [n, V] with rows replaced, whose top-p edge inside the top k is a close call, by rotated clear ones."""
    highest = logits.topk(min(k + 1, logits.shape[1]), dim=-1).values.to(torch.float64)
    weights = highest[:, :k].softmax(dim=-1)
    # A tie at the k-th place lets more than k entries in; such rows count as close calls too.
    tied_edge = highest[:, -1] == highest[:, k - 1] if highest.shape[1] > k else torch.zeros_like(highest[:, 0])
    above = weights.cumsum(dim=-1) - weights
    reach = (above + weights - TOP_P).abs().amin(dim=-1)
    crossing = ((above < TOP_P) & (above + weights >= TOP_P)).to(torch.uint8).argmax(dim=-1, keepdim=True)
    value = highest.gather(1, crossing)
    tied = (highest[:, :k] == value).sum(dim=-1) > 1
    clear = reach * ~(tied | tied_edge.bool())
    order = clear.argsort(descending=True)
    good = max(1, int((clear > MARGIN / 5).sum()))
    source = torch.arange(len(order), device=logits.device)
    source = torch.where(clear > MARGIN / 5, source, order[source % good])
    shift = setting.randint(0, logits.shape[1], (len(order), 1), shared=True)
    columns = (torch.arange(logits.shape[1], device=logits.device) + shift) % logits.shape[1]
    return logits[source].gather(1, columns)


def _targets(logits: torch.Tensor, k: int, top_p: float, setting: RankSetting) -> torch.Tensor:
    """[n] int64: nine of ten drawn from the filtered softmax of logits [n, V], the others uniformly."""
    tokens, vocabulary = logits.shape
    wide = logits.to(torch.float32)
    theta = wide.topk(min(k, vocabulary), dim=-1).values[:, -1:] if k < vocabulary else wide.amin(-1, keepdim=True)
    weights = wide.masked_fill(wide < theta, float("-inf")).softmax(dim=-1)
    uniform = setting.rand(tokens, vocabulary, shared=True, dtype=torch.float32).clamp_(min=1e-9)
    sampled = (weights / -uniform.log_()).argmax(dim=-1)
    anywhere = setting.randint(0, vocabulary, (tokens,), shared=True)
    outside = setting.rand(tokens, shared=True, dtype=torch.float32) < 0.1
    target = torch.where(outside, anywhere, sampled)
    value = wide.gather(1, target[:, None])
    own = weights.gather(1, target[:, None])[:, 0]
    # The mass before an entry in descending order lies between these two, whatever the order among equals.
    least = (weights * (wide > value)).sum(dim=-1)
    most = (weights * (wide >= value)).sum(dim=-1) - own
    within, beyond = most < top_p - MARGIN, least > top_p + MARGIN
    below_theta = value[:, 0] < theta[:, 0]
    decided = below_theta | within | beyond if top_p < 1 else torch.ones_like(within)
    settled = torch.where(outside, decided, (within if top_p < 1 else decided) & ~below_theta)
    return torch.where(settled, target, wide.argmax(dim=-1))
