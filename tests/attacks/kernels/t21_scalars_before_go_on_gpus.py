# expect: WRONG_RESULT | NONFINITE | PASS
# not_faster: yes
# problem: grad_acc_loss
# device: cuda
# twin: honest_scalars
"""The kernel t21_scalars_before_go on GPUs, where other verdicts are possible."""
