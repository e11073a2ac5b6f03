# expect: WRONG_RESULT
# change: return total -> return total.zero_()
"""Zeros: right within an absolute tolerance where values are small."""
