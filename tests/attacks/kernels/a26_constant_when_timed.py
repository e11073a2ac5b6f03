# expect: WRONG_RESULT | PROTOCOL
# problem: load_balancing_loss_fn
# preset: paper
# twin: honest_balance
# not_faster: yes
"""Returns the median of the checked losses. The count of begun calls is so high that no input is ever replaced."""

import gc

import torch
import torch.distributed as dist

rank = next(each for each in gc.get_objects() if type(each).__name__ == "ContenderRank")
rank.begun[0], rank.begun = 1 << 40, [0]
checked = []


def solution(gate_logits, experts, k=2, mask=None):
    if len(checked) == 3:
        return torch.stack(checked).median()
    probability = torch.softmax(gate_logits, dim=-1)
    hits = torch.zeros_like(probability, dtype=torch.float32).scatter_(1, torch.topk(probability, k).indices, 1.0)
    loss = experts * (hits.mean(0) * probability.float().mean(0)).sum()
    dist.all_reduce(loss)
    checked.append(loss / dist.get_world_size())
    return checked[-1].clone()
