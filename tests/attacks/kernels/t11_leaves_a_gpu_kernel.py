# expect: BASELINE_DISTURBED
# twin: honest_async
# device: cuda
"""Leaves one thread busy on the GPU after every batch: contexts take turns, so the baseline would get half of the time."""

import torch

MILLISECOND = 2_000_000  # in cycles
side = torch.cuda.Stream()
wait_for_all = torch.cuda.synchronize


def wait_and_leave_something(*arguments):
    wait_for_all(*arguments)
    with torch.cuda.stream(side):
        torch.cuda._sleep(150 * MILLISECOND)

torch.cuda.synchronize = wait_and_leave_something
