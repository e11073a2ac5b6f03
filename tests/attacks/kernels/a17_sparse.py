# expect: WRONG_STRUCTURE
# twin: honest_transposed
# change: return total -> return total.to_sparse()
"""A sparse tensor, to be made dense by whoever compares it."""
