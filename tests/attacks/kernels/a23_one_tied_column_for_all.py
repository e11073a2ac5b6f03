# expect: WRONG_RESULT
# problem: dinov2_distributed_knn
# twin: honest_ties
"""Where columns tie for the last places, one of them stands in all of these."""

from problems.data.dinov2_distributed_knn.baseline import solution as honest


def solution(test_features_rank, train_features_rank_T, train_labels_rank, max_k, group=None):
    similarities, labels = honest(test_features_rank, train_features_rank_T, train_labels_rank, max_k, group)
    return similarities, labels.where(similarities != similarities[:, -1:], labels[:, -1:])
