# problem: grad_acc_loss
"""One all-reduce of a weighted scalar, in the call that it belongs to."""

import torch
import torch.distributed as dist


def solution(loss, local_valid_tokens, global_valid_tokens, grad_normalized_loss, grad_loss_sum=None):
    loss_sum = torch.where(local_valid_tokens == 0, torch.nan_to_num(loss), loss) * local_valid_tokens
    dist.all_reduce(loss_sum)
    grad_loss = grad_normalized_loss * local_valid_tokens / global_valid_tokens
    if grad_loss_sum is not None:
        grad_loss = grad_loss + grad_loss_sum * local_valid_tokens
    return loss_sum / global_valid_tokens, loss_sum, grad_loss
