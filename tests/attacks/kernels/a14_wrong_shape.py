# expect: WRONG_STRUCTURE
# change: return total -> return total[None]
"""A leading dimension of one: it broadcasts, but it is not the answer's shape."""
