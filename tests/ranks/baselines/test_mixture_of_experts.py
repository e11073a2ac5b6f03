"""Compares mixture-of-experts problems with their definitions, token by token, on one process from all inputs."""

import pytest
import torch
from torch.nn.functional import silu


def _balancing_loss(tensors, experts, top_k):
    """The loss of one rank by definition: counts the hits of experts row by row."""
    layers, rows, _ = tensors["gate_logits"].shape
    keep = torch.ones(layers, rows, dtype=torch.bool)
    if tensors["masked"]:
        keep = tensors["attention_mask"].bool().flatten().expand(layers, rows)
    probabilities = tensors["gate_logits"].double().exp()
    probabilities = (probabilities / probabilities.sum(dim=-1, keepdim=True))[keep]
    hits = torch.zeros(experts, dtype=torch.float64)
    for row in probabilities.tolist():
        for expert in sorted(range(experts), key=row.__getitem__)[-top_k:]:
            hits[expert] += 1
    return experts * (hits / len(probabilities) * probabilities.mean(dim=0)).sum()


@pytest.mark.parametrize(("world", "seed"), [(1, 1), (3, 1), (2, 3)])
def test_load_balancing_loss_is_mean_of_ranks_losses(gathered, world, seed):
    ranks = gathered("load_balancing_loss_fn", world, seed=seed, M=64)
    assert bool(ranks[0].tensors["masked"]) == (seed % 4 != 3)
    losses = torch.stack([_balancing_loss(rank.tensors, rank.sizes.E, rank.sizes.K) for rank in ranks])
    assert world == 1 or float(losses.std()) > 0.01, "mean of losses and loss of means must differ"
    for rank in ranks:
        assert rank.result.dtype == torch.float32
        torch.testing.assert_close(rank.result.double(), losses.mean(), rtol=1e-5, atol=0)
        torch.testing.assert_close(rank.oracle, losses.mean())


@pytest.mark.parametrize("world", [1, 2, 4])
def test_token_preprocess_counts_rows_per_pair_of_ranks(gathered, world):
    ranks = gathered("moe_token_preprocess", world, M=40)
    experts = ranks[0].sizes.E
    local = experts // world
    counts = torch.stack([rank.tensors["mask"].sum(dim=(0, 1)) for rank in ranks])
    assert bool((counts.sum(dim=0) == 0).any()), "one expert has no tokens"
    for r, rank in enumerate(ranks):
        sent, received, arriving, total = rank.result
        assert (sent.dtype, received.dtype) == (torch.int64, torch.int64)
        assert sent.tolist() == [int(counts[r, d * local : (d + 1) * local].sum()) for d in range(world)]
        assert received.tolist() == [int(counts[s, r * local : (r + 1) * local].sum()) for s in range(world)]
        torch.testing.assert_close(arriving, counts[:, r * local : (r + 1) * local], rtol=0, atol=0)
        torch.testing.assert_close(total, arriving.sum(dim=0), rtol=0, atol=0)


@pytest.mark.parametrize(("world", "dtype"), [(2, "bfloat16"), (3, "float32")])
def test_all2all_primitive_moves_each_block_to_its_rank(gathered, world, dtype):
    ranks = gathered("moe_all2all_primitive", world, dtype=dtype, M=20, N=3)
    blocks = [rank.tensors["local_tensor"].split(rank.tensors["input_split_sizes"].tolist()) for rank in ranks]
    assert any(0 in rank.tensors["input_split_sizes"] for rank in ranks)
    for r, rank in enumerate(ranks):
        expected = torch.cat([blocks[s][r] for s in range(world)])
        assert torch.equal(rank.result, expected)


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_pre_all2all_hands_each_expert_tokens_by_source(gathered, world):
    ranks = gathered("moe_pre_all2all", world, M=12, N=4)
    local = ranks[0].sizes.E // world
    for r, rank in enumerate(ranks):
        rows, routing, permutation, shape = rank.result
        expected = [
            source.tensors["hidden_states"][source.tensors["expert_mask"][e].sum(dim=0) > 0]
            for e in range(r * local, (r + 1) * local)
            for source in ranks
        ]
        assert torch.equal(rows, torch.cat(expected))
        assert torch.equal(routing, rank.tensors["expert_mask"].sum(dim=1))
        assert permutation.tolist() == [t for e in routing.tolist() for t, chosen in enumerate(e) if chosen]
        assert shape == (12, 4)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_post_all2all_gives_tokens_weighted_expert_rows(gathered, world):
    ranks = gathered("moe_post_all2all", world, M=12, N=4)
    experts, local = ranks[0].sizes.E, ranks[0].sizes.E // world
    row_of = {}
    for owner, rank in enumerate(ranks):
        position = 0
        for e in range(owner * local, (owner + 1) * local):
            for s, source in enumerate(ranks):
                for t in source.tensors["routing_map"][e].nonzero().flatten().tolist():
                    row_of[s, e, t] = rank.tensors["expert_outputs"][position].double()
                    position += 1
        assert position == len(rank.tensors["expert_outputs"])
    assert experts > local or world == 1
    for s, rank in enumerate(ranks):
        expected = torch.zeros(12, 4, dtype=torch.float64)
        for t in range(12):
            for e, weight in zip(
                rank.tensors["selected_experts"][t].tolist(), rank.tensors["routing_weights"][t], strict=True
            ):
                expected[t] += weight.double() * row_of[s, e, t]
        torch.testing.assert_close(rank.oracle, expected)
        torch.testing.assert_close(rank.result.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("world", [1, 3])
def test_lora_gradients_are_summed_over_the_ranks(gathered, world):
    ranks = gathered("moe_epgroupgemm_lora_backward", world, N=50)
    for index, name in enumerate(("grad_fc1_1_lora_A", "grad_fc1_2_lora_A", "grad_fc2_lora_B")):
        expected = sum(rank.tensors[name].double() for rank in ranks)
        for rank in ranks:
            torch.testing.assert_close(rank.result["returned"][index].double(), expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(rank.oracle["returned"][index], expected)


def _projection(tensors, name, x, lora):
    y = x @ tensors[f"{name}_proj_weight"].double().t() + tensors[f"{name}_proj_bias"].double()
    if lora:
        a, b = tensors[f"lora_{name}_A"].double(), tensors[f"lora_{name}_B"].double()
        y = y + x @ a.t() @ b.t()
    return y


def _mlp(tensors, x, lora):
    hidden = silu(_projection(tensors, "gate", x, lora)) * _projection(tensors, "up", x, lora)
    return _projection(tensors, "down", hidden, lora)


@pytest.mark.parametrize(
    ("name", "world"),
    [
        ("fused_moe_fwd", 1),
        ("fused_moe_fwd", 4),
        ("fused_moe_fwd_lora", 2),
        ("moe_ep_balanced", 3),
        ("moe_ep_wide", 3),
        ("moe_ep_narrow", 2),
        ("moe_ep_narrow", 4),
        ("moe_ep_narrow", 6),
    ],
)
def test_moe_layer_is_weighted_sum_of_owners_mlps(gathered, name, world):
    ranks = gathered(name, world, M=24, N=16, I=12)
    experts, top_k = ranks[0].sizes.E, ranks[0].sizes.K
    members = min(world, experts)
    for r, rank in enumerate(ranks):
        x = rank.tensors["hidden_states"].double()
        logits = x @ rank.tensors["gate_weight"].double().t() + rank.tensors["gate_bias"].double()
        probabilities = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
        expected = torch.zeros_like(x)
        first = r // members * members
        for t in range(24):
            for e in probabilities[t].argsort(descending=True)[:top_k].tolist():
                owner = ranks[first + e * members // experts].tensors
                expected[t] += probabilities[t, e] * _mlp(owner, x[t], lora="lora" in name)
        torch.testing.assert_close(rank.oracle, expected)
        torch.testing.assert_close(rank.result.double(), expected, rtol=1e-4, atol=1e-4)
