# expect: WRONG_STRUCTURE | WRONG_RESULT
# problem: gnn_neighbor_sampling
# preset: paper
# twin: baseline
# not_faster: yes
"""Samples in the checked calls, then returns the last sample of upstream's graph, which never changes."""

from problems.graph.gnn_neighbor_sampling.baseline import solution as sampled

kept = []


def solution(seeds, *more):
    if len(kept) < 3:
        kept.append((int(seeds[1] - seeds[0]), sampled(seeds, *more)))
        return tuple(each.clone() for each in kept[-1][1])
    return tuple(each.clone() for each in next(sample for stride, sample in kept if stride == 1))
