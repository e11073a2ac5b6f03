# expect: WRONG_RESULT
# problem: dinov2_distributed_knn
# twin: honest_ties
"""Every label is right but the last of each row, where another label might stand if its similarity tied for the last place."""

from problems.data.dinov2_distributed_knn.baseline import solution as honest


def solution(test_features_rank, train_features_rank_T, train_labels_rank, max_k, group=None):
    similarities, labels = honest(test_features_rank, train_features_rank_T, train_labels_rank, max_k, group)
    labels[:, -1] = -12345
    return similarities, labels
