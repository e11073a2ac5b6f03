"""Compares sharded training steps and FP8 transfers with their formulas, on one process from all ranks' inputs."""

import inspect

import pytest
import torch
from torch.nn import functional

from problems.catalogue import load_catalogue
from sandbox.rank.problem_code import ProblemCode


def close(result, oracle, expected, rtol=1e-4):
    size = float(expected.double().square().mean().sqrt())
    torch.testing.assert_close(oracle.double(), expected.double(), rtol=1e-7, atol=1e-9 * size)
    torch.testing.assert_close(result.double(), expected.double(), rtol=rtol, atol=rtol * size)


def adam(weight, mean, square, g, t, lr, beta2=0.999, decay=0.0):
    mean = 0.9 * mean + 0.1 * g
    square = beta2 * square + (1 - beta2) * g * g
    step = (mean / (1 - 0.9**t)) / ((square / (1 - beta2**t)).sqrt() + 1e-8)
    return weight - lr * step - lr * decay * weight, mean, square


def averaged_gradient(ranks, flat, sizes):
    """Flat gradient of the mean over ranks of every rank's mean squared error, in float64."""
    flat = flat.double().requires_grad_()
    ends = [sizes.h * sizes.d_in, sizes.h, sizes.d_out * sizes.h, sizes.d_out]
    w1, b1, w2, b2 = flat.split(ends)
    losses = []
    for rank in ranks:
        x, y = rank.tensors["X_local"].double(), rank.tensors["y_local"].double()
        hidden = torch.clamp(x @ w1.view(sizes.h, -1).T + b1, min=0)
        losses.append((hidden @ w2.view(sizes.d_out, -1).T + b2 - y).pow(2).mean())
    return torch.autograd.grad(torch.stack(losses).mean(), flat)[0]


def joined(ranks, name):
    return torch.cat([rank.tensors[name] for rank in ranks]).double()


@pytest.mark.parametrize("name", ["zero1_optimizer_shard", "zero2_optimizer_shard_grad"])
@pytest.mark.parametrize("world", [1, 3])
def test_zero_steps_equal_adam_on_the_whole_vector(gathered, name, world):
    ranks = gathered(name, world)
    root, sizes = ranks[0].tensors, ranks[0].sizes
    flat = torch.cat([root[key].flatten() for key in ("W1", "b1", "W2", "b2")])
    g = averaged_gradient(ranks, flat, sizes)
    moments = joined(ranks, "exp_avg_part"), joined(ranks, "exp_avg_sq_part")
    weight, mean, square = adam(flat.double(), *moments, g, int(root["step"]), lr=0.5)
    for rank in ranks:
        whole = [torch.cat([part.flatten() for part in tree[:4]]) for tree in (rank.result, rank.oracle)]
        close(*whole, weight)
        close(rank.result[4], rank.oracle[4], mean.chunk(world)[rank.rank])
        close(rank.result[5], rank.oracle[5], square.chunk(world)[rank.rank])


@pytest.mark.parametrize("world", [1, 3])
def test_fsdp_step_equals_adamw_on_the_whole_vector(gathered, world):
    ranks = gathered("fsdp_step_e2e", world)
    flat = joined(ranks, "flat_param_shard")
    g = averaged_gradient(ranks, flat.clone(), ranks[0].sizes)
    moments = joined(ranks, "exp_avg_shard"), joined(ranks, "exp_avg_sq_shard")
    step = int(ranks[0].tensors["step"])
    expected = adam(flat, *moments, g, step, lr=0.1, beta2=0.95, decay=0.3)
    for rank in ranks:
        for index in range(3):
            close(rank.result[index], rank.oracle[index], expected[index].chunk(world)[rank.rank])


@pytest.mark.parametrize("world", [1, 2])
def test_fused_adam_gathers_updated_slices(gathered, world):
    ranks = gathered("fused_adam_grad_unshard_allgather", world, M=3)
    weight, mean, square, g = (joined(ranks, name) for name in ("master_shard", "exp_avg", "exp_avg_sq", "grad_shard"))
    expected, _, _ = adam(weight, mean, square, g, int(ranks[0].tensors["step"]), lr=0.5)
    for rank in ranks:
        close(rank.result, rank.oracle, expected)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_fsdp_and_tp_is_mlp_of_joined_weights(gathered, world):
    ranks = gathered("fsdp_and_tp", world, M=10, N=40)
    tp, fsdp = ranks[0].sizes.n_tp, ranks[0].sizes.n_fsdp
    grid = [[ranks[f * tp + t].tensors for t in range(tp)] for f in range(fsdp)]

    def whole(name, transposed):
        blocks = [torch.cat([cell[name].double() for cell in row], dim=0 if transposed else 1) for row in grid]
        return torch.cat(blocks, dim=1 if transposed else 0)

    w1, w2, w3 = whole("W1_shard", False), whole("W2_shard", False), whole("W3_shard", True)
    for rank in ranks:
        x = rank.tensors["x_local"].double()
        expected = (functional.silu(x @ w1) * (x @ w2)) @ w3
        close(rank.result, rank.oracle, expected)


def e4m3_grid():
    """All non-negative E4M3 values, by the format's definition."""
    subnormal = [m / 8 * 2.0**-6 for m in range(8)]
    normal = [(1 + m / 8) * 2.0 ** (e - 7) for e in range(1, 16) for m in range(8) if (e, m) != (15, 7)]
    return torch.tensor(subnormal + normal, dtype=torch.float64)


def through_e4m3(x, history):
    """Returns (x rounded to the nearest scaled E4M3 values, new history). Ties go to the even code."""
    history = torch.cat([history[1:], x.abs().max().bfloat16()[None]])
    scale = torch.clamp(history.max().float(), min=1e-12) / 448
    grid = e4m3_grid()
    ratio = (x.float() / scale).double()
    above = torch.searchsorted(grid, ratio.abs()).clamp(max=len(grid) - 1)
    below = (above - 1).clamp(min=0)
    up, down = grid[above] - ratio.abs(), ratio.abs() - grid[below]
    code = torch.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    return (torch.copysign(grid[code], ratio).float() * scale), history


@pytest.mark.parametrize(("world", "seed"), [(1, 1), (3, 2), (3, 3)])
def test_fp8_gather_is_exactly_the_grid(gathered, world, seed):
    ranks = gathered("fp8_allgather_params", world, seed=seed, M=8)
    found = [through_e4m3(rank.tensors["flat_param_shard"], rank.tensors["amax_history"]) for rank in ranks]
    whole = torch.cat([values for values, _ in found])
    for rank, (_, history) in zip(ranks, found, strict=True):
        torch.testing.assert_close(rank.result[0], whole, rtol=0, atol=0)
        torch.testing.assert_close(rank.result[1], history, rtol=0, atol=0)


@pytest.mark.parametrize(("world", "seed"), [(1, 1), (3, 2), (3, 3)])
def test_fp8_reduce_scatter_averages_what_fp8_leaves(gathered, world, seed):
    ranks = gathered("fp8_reduce_scatter_grads", world, seed=seed, M=8)
    found = [through_e4m3(rank.tensors["flat_grads"], rank.tensors["amax_history"]) for rank in ranks]
    mean = sum(values.double() for values, _ in found) / world
    for rank, (_, history) in zip(ranks, found, strict=True):
        close(rank.result[0], rank.oracle[0], mean.chunk(world)[rank.rank], rtol=1e-6)
        torch.testing.assert_close(rank.result[1], history, rtol=0, atol=0)


@pytest.mark.parametrize(("world", "seed"), [(2, 1), (4, 1), (4, 3), (5, 1)])
def test_clip_grad_norm_ep_uses_one_joint_norm(gathered, world, seed):
    ranks = gathered("clip_grad_norm_ep", world, seed=seed, M=6, N=10)
    experts = max(1, world // 2)
    dense = torch.cat([rank.tensors["dense"].double().flatten() for rank in ranks])
    expert = torch.cat([rank.tensors["expert"].double().flatten() for rank in ranks]) / experts
    norm = torch.cat([dense, expert]).norm()
    limit = float(ranks[0].tensors["max_norm"])
    assert (limit > 1) == (seed % 4 == 3)
    factor = min(1.0, limit / float(norm))
    for rank in ranks:
        assert rank.result["returned"].dtype == torch.float32
        torch.testing.assert_close(rank.result["returned"].double(), norm, rtol=1e-5, atol=0)
        torch.testing.assert_close(rank.oracle["returned"], norm)
        for family, divisor in (("dense", 1), ("expert", experts)):
            expected = rank.tensors[family].double() / divisor * factor
            torch.testing.assert_close(rank.result["written"][family].double(), expected, rtol=1e-5, atol=0)
            torch.testing.assert_close(rank.oracle["written"][family], expected)


def coefficients():
    """The baseline's table of (a, b, g)."""
    solution = ProblemCode(load_catalogue().find("tp_muon_orthogonalization")).baseline
    return inspect.unwrap(solution).__globals__["COEFFICIENTS"]


def orthogonalised(x, triples, steps):
    """X = U S V^T: each step maps every singular value s to a s + b s^3 + g s^5."""
    u, s, v = torch.linalg.svd(x.double(), full_matrices=False)
    s = s / s.square().sum().sqrt()
    for step in range(steps):
        a, b, g = triples[step % len(triples)]
        s = a * s + b * s**3 + g * s**5
    return u @ torch.diag(s) @ v


@pytest.mark.parametrize(("world", "seed"), [(1, 1), (3, 3)])
def test_muon_acts_on_singular_values_alone(gathered, world, seed):
    ranks = gathered("tp_muon_orthogonalization", world, dtype="bfloat16", seed=seed)
    whole = torch.cat([rank.tensors["x"] for rank in ranks], dim=1)
    expected = orthogonalised(whole, coefficients()["quintic"], 5)
    for rank, part in zip(ranks, expected.chunk(world, dim=1), strict=True):
        torch.testing.assert_close(rank.oracle, part, rtol=1e-6, atol=1e-8)
        assert rank.result.dtype == torch.bfloat16
        torch.testing.assert_close(rank.result.double(), part, rtol=1e-2, atol=1e-4)
