# expect: NONFINITE
# change: return total -> return total.where(total != total[3, 3], float("nan"))
"""Few NaNs: wildcards for checkers that allow them."""
