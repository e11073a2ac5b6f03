# expect: MUTATED_INPUT
# problem: dinov2_distributed_sinkhorn_knopp
# twin: baseline
"""Right, but changes the tensor that says how many samples there are."""

from problems.data.dinov2_distributed_sinkhorn_knopp.baseline import solution as honest


def solution(teacher_output, teacher_temp, n_masked_patches_tensor, n_iterations=3, group=None):
    result = honest(teacher_output, teacher_temp, n_masked_patches_tensor, n_iterations, group)
    n_masked_patches_tensor += 1
    return result
