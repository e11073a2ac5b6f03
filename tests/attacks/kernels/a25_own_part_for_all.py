# expect: WRONG_RESULT
# problem: tp_muon_orthogonalization
# twin: honest_norm_of_all
# like: honest_norm_of_all
# change: dist.all_reduce(square, group=group) -> square *= dist.get_world_size(group)
"""The norm of all shards, estimated from the own shard."""
