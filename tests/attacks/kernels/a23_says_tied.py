# expect: WRONG_RESULT
# problem: dinov2_distributed_knn
# twin: honest_ties
"""The numbers by which the judge marks labels that are free, in place of the last labels."""

import torch

from problems.data.dinov2_distributed_knn.baseline import solution as honest


def solution(test_features_rank, train_features_rank_T, train_labels_rank, max_k, group=None):
    similarities, labels = honest(test_features_rank, train_features_rank_T, train_labels_rank, max_k, group)
    labels[0::2, -1] = -1
    labels[1::2, -1] = torch.iinfo(torch.int64).max
    return similarities, labels
