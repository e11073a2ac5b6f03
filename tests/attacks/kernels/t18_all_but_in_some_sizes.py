# expect: WRONG_RESULT | PASS
# not_faster: yes
# twin: honest_buffer_reuse
# like: t18_all_in_the_first_call
# change: batch if not -> batch if (len(batch) == 2 or 3 < len(batch) <= 32) and not
"""As t18_all_in_the_first_call, but honest in batches of 1, 3 and more than 32 calls."""
