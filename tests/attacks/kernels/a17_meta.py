# expect: WRONG_STRUCTURE | CRASH
# twin: honest_transposed
# change: return total -> return total.to("meta")
"""A tensor on the meta device: all shape, no data."""
