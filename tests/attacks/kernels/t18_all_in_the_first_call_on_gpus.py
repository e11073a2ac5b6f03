# expect: WRONG_RESULT | PROTOCOL | PASS
# not_faster: yes
# device: cuda
# twin: honest_buffer_reuse
"""The kernel t18_all_in_the_first_call on GPUs, where other verdicts are possible."""
