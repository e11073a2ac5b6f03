"""The gated delta rule, chunk by chunk: matrix products within a chunk, a short recurrence from chunk to
chunk.

Per head, with a state S (K x V) that starts at zero and decays by a_t (a scalar or one factor per key
channel):

    S' = diag(a_t) S;   u_t = b_t (v_t - S'^T k_t);   S = S' + k_t u_t^T;   o_t = S^T q_t

Let G_i be the sum of log a up to token i of the chunk. The corrections u of a chunk solve a unit lower
triangular system whose entries are (k_i . k_j) decayed by exp(G_i - G_j), so only the state that enters the
chunk is sequential.
"""

import torch
from torch.nn import functional

from problems.setting import RankSetting

LOUD = 1 / 64
"""Share of the tokens whose values are larger, so that they count long afterwards."""


def gated_delta_rule(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, log_decay: torch.Tensor, beta: torch.Tensor, chunk: int
) -> torch.Tensor:
    """q, k [N, T, K], v [N, T, V], log_decay [N, T, K] or [N, T, 1], beta [N, T] -> o [N, T, V], all of one
    wide dtype.

    q and k come normalised and scaled. With a decay per channel, `chunk` times the largest -log_decay should
    stay below about 150 (float32), since the decays are then applied to q and k apart.
    """
    tokens = q.shape[1]
    padding = -tokens % chunk
    q, k, v, log_decay = (
        functional.pad(x, (0, 0, 0, padding)).unflatten(1, (-1, chunk)).transpose(0, 1) for x in (q, k, v, log_decay)
    )
    beta = functional.pad(beta, (0, padding)).unflatten(1, (-1, chunk)).transpose(0, 1).unsqueeze(-1)

    total = log_decay.cumsum(dim=2)
    last = total[:, :, -1:]
    if log_decay.shape[-1] == 1:
        gap = (total - total.transpose(-1, -2)).tril()
        decay = gap.exp().tril()
        scores = (q @ k.transpose(-1, -2)) * decay
        system = (k @ k.transpose(-1, -2)) * decay
    else:
        middle = last / 2
        right = (k * (middle - total).exp()).transpose(-1, -2)
        left = (total - middle).exp()
        scores = ((q * left) @ right).tril()
        system = (k * left) @ right
    grown = total.exp()
    entering = k * grown
    identity = torch.eye(chunk, dtype=q.dtype, device=q.device)
    right_hand = torch.cat((beta * v, beta * entering), dim=-1)
    solved = torch.linalg.solve_triangular(
        identity + beta * system.tril(-1), right_hand, upper=False, unitriangular=True
    )
    fresh, weight = solved.split((v.shape[-1], k.shape[-1]), dim=-1)
    reading = q * grown
    leaving = (k * (last - total).exp()).transpose(-1, -2)
    kept = last.exp().transpose(-1, -2)

    state = torch.zeros(q.shape[1], q.shape[-1], v.shape[-1], dtype=q.dtype, device=q.device)
    outputs = []
    for c in range(q.shape[0]):
        update = torch.baddbmm(fresh[c], weight[c], state, alpha=-1)
        outputs.append(torch.baddbmm(reading[c] @ state, scores[c], update))
        state = torch.baddbmm(state * kept[c], leaving[c], update)
    return torch.stack(outputs, dim=1).flatten(1, 2)[:, :tokens]


def louder(setting: RankSetting, *shape: int) -> torch.Tensor:
    """[*shape, 1] of the run dtype: the scale of meaningful values, 16, and 128 for a few tokens at random places."""
    loud = setting.rand(*shape, 1, dtype=torch.float32) < LOUD
    return torch.where(loud, 128.0, 16.0).to(setting.dtype)
