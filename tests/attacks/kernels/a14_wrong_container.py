# expect: WRONG_STRUCTURE
# change: return total -> return (total,)
"""The right tensor inside a tuple."""
