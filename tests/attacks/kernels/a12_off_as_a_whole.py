# expect: WRONG_RESULT
# change: return total -> return total * 1.0045
"""Every element is off by a little more than rounding, and none by much."""
