# expect: WRONG_STRUCTURE
# change: return total -> return total.half()
"""float16 for bfloat16: half the harnesses compare after .float()."""
