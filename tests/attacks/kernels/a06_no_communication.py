# expect: WRONG_RESULT
# change: dist.all_reduce(total) -> total *= dist.get_world_size()
"""W times the own tensor."""
