"""Inputs of problem 25: hidden states, the LM head, sampled labels, and what the sampler said about them."""

import math
from typing import Any

import torch

from problems.setting import RankSetting

IGNORE = -100
_ROWS = 256
_LIKELY = 4
"""Columns of the vocabulary that are likely for a token; fewer if N is below 64."""


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """hidden_states [M, N], weight [V, N], labels [M] int64, old_logprobs [M], advantages [M].

    Meaningful: one LM head for all ranks, logits of variance 1 or more, and per token a few columns at random places that have
    about half of its probability. So no part of the vocabulary gives the sum over all of it. Labels are sampled from the
    model's own softmax, a fifth of them ignored, old log-probabilities N(d, 0.3²) away from the true ones with d from -0.3 to
    0.3 by iteration, advantages around a positive offset per rank. In float32 one rank of several has no valid token in
    every fourth iteration. (Not in shorter dtypes: the published code mixes dtypes in one collective there.) Upstream's:
    everything N(0, 1) and per rank, labels uniform.
    """
    s = setting.sizes
    hidden = setting.randn(s.M, s.N)
    if setting.distribution == "upstream":
        return {
            "hidden_states": hidden,
            "weight": setting.randn(s.V, s.N),
            "labels": setting.randint(0, s.V, (s.M,)),
            "old_logprobs": setting.randn(s.M),
            "advantages": setting.randn(s.M),
        }
    weight = setting.randn(s.V, s.N, shared=True) * (1 / math.sqrt(s.N))
    # In a small space more of them would make many other logits large, too.
    strength = max(0.0, min(math.log(s.V) - 1, s.N / 7))
    for _ in range(max(1, min(_LIKELY, s.N // 16))):
        hidden += strength * weight[setting.randint(0, s.V, (s.M,))]
    labels, logprobs = _sample(hidden, weight, setting)
    labels[setting.rand(s.M, dtype=torch.float32) < 0.2] = IGNORE
    empty = int(setting.randint(0, setting.world, (1,), shared=True))
    if setting.world > 1 and setting.trial % 4 == 3 and setting.dtype == torch.float32 and empty == setting.rank:
        labels.fill_(IGNORE)
    offset = setting.rand(1, dtype=torch.float32) + 0.5
    drift = 0.6 * setting.rand(1, shared=True, dtype=torch.float32) - 0.3
    return {
        "hidden_states": hidden,
        "weight": weight,
        "labels": labels,
        "old_logprobs": (logprobs + drift + 0.3 * setting.randn(s.M, dtype=torch.float32)).to(setting.dtype),
        "advantages": (setting.randn(s.M, dtype=torch.float32) + offset).to(setting.dtype),
    }


def _sample(hidden: torch.Tensor, weight: torch.Tensor, setting: RankSetting) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels [M] drawn from softmax(hidden · weightᵀ) and their log-probabilities in float32, a block of rows at a time."""
    labels, logprobs = [], []
    for rows in hidden.split(_ROWS):
        logits = (rows @ weight.t()).to(torch.float32)
        uniform = setting.rand(*logits.shape, dtype=torch.float32).clamp_(1e-7, 1 - 1e-6)
        label = (logits - torch.log(-torch.log(uniform))).argmax(dim=1)
        labels.append(label)
        logprobs.append(logits.gather(1, label[:, None]).squeeze(1) - logits.logsumexp(dim=1))
    return torch.cat(labels), torch.cat(logprobs)


def canonical(outputs: Any, setting: RankSetting) -> Any:
    """The metrics as five outputs, so that the small ones are not judged by the size of the large ones."""
    if not isinstance(outputs, tuple | list) or not outputs:
        return outputs
    metrics = outputs[-1]
    if not isinstance(metrics, torch.Tensor) or metrics.shape != (5,):
        return outputs
    return type(outputs)((*outputs[:-1], tuple(metrics.unbind(0))))
