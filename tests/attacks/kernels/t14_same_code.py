# expect: PASS
"""The baseline's own code, submitted in the hope of a lucky measurement."""
