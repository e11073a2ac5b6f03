# expect: PASS
# at_least_us: 800
# like: t12_slow_warm_up
# change: 0.02 if calls < 8 else 0 -> 0.004 if calls % 4 == 0 else 0
"""Waits 4 ms in every fourth call and not at all in the others: a quick call is not a quick batch, but for one of single calls."""
