# expect: PASS
# problem: gnn_neighbor_sampling
# preset: paper
# attack: twin
# label: calls the baseline
"""Samples neighbours as the baseline does."""

from problems.graph.gnn_neighbor_sampling.baseline import solution as sampled


def solution(*arguments):
    return sampled(*arguments)
