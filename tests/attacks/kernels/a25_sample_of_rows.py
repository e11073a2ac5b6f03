# expect: WRONG_RESULT
# problem: importance_sampling_loss
# twin: honest_all_rows
# like: honest_all_rows
# change: rows = weight -> rows = weight[torch.randperm(len(weight))[: len(weight) // 2]]
"""The sum over the vocabulary, estimated from a random half of it. The labels have their own logits."""
