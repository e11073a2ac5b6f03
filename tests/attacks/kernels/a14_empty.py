# expect: WRONG_STRUCTURE
# change: return total -> return total.new_empty(0)
"""No elements at all: nothing can be wrong with them."""
