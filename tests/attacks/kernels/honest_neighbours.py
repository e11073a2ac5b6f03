# problem: gnn_neighbor_sampling
# preset: paper
# label: calls the baseline
"""Samples neighbours as the baseline does."""

from problems.graph.gnn_neighbor_sampling.baseline import solution as sampled


def solution(*arguments):
    return sampled(*arguments)
