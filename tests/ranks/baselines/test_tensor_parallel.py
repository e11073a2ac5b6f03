"""Compares tensor-parallel baselines with the formulas of their cards, on one process from all ranks' inputs."""

import math

import pytest
import torch
from torch.nn import functional

from problems.catalogue import load_catalogue
from sandbox.rank.problem_code import ProblemCode


def wide(rank, name):
    return rank.tensors[name].double()


def close(got, expected, tolerance):
    torch.testing.assert_close(got.double(), expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))


def joined(ranks, name, dim):
    return torch.cat([wide(rank, name) for rank in ranks], dim=dim)


def test_layernorm_backward_gives_gradients_of_gain_and_bias(gathered):
    ranks = gathered("layernorm_backward", 3, M=40, N=24)
    x, upstream = joined(ranks, "X_hat", 0), joined(ranks, "dY", 0)
    gain = torch.ones(24, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(24, dtype=torch.float64, requires_grad=True)
    (x * gain + bias).backward(upstream)
    torch.testing.assert_close(x.mean(1), torch.zeros(120, dtype=torch.float64), rtol=0, atol=1e-5)
    for rank in ranks:
        for result, oracle, expected in zip(rank.result, rank.oracle, (gain.grad, bias.grad), strict=True):
            close(result, expected, 1e-5)
            close(oracle, expected, 1e-12)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_embedding_lookup_groups_the_rows_by_owner(gathered, seed):
    ranks = gathered("embedding_lookup", 3, seed=seed, M=40, N=8)
    table = torch.cat([rank.tensors["local_shard"] for rank in ranks])
    for rank in ranks:
        indices = rank.tensors["indices"]
        grouped = torch.cat([indices[indices // 40 == owner] for owner in range(3)])
        assert torch.equal(rank.result, table[grouped])


def test_embedding_lookup_serves_rank_that_asks_for_nothing(in_ranks):
    solution = ProblemCode(load_catalogue().find("embedding_lookup")).baseline

    def work(rank, world):
        shard = torch.arange(4.0).view(4, 1) + 4 * rank
        wanted = torch.tensor([5, 0, 5]) if rank == 0 else torch.tensor([], dtype=torch.int64)
        return solution(wanted, shard)

    asked, idle = in_ranks(2, work)
    assert asked.flatten().tolist() == [0.0, 5.0, 5.0]
    assert idle.shape == (0, 1)


@pytest.mark.parametrize("slug", ["allgather_gemm", "allgather_gemm_AT"])
def test_gathered_gemm_multiplies_joined_columns_by_own_weight(gathered, slug):
    ranks = gathered(slug, 4, M=24, N=20, K=32)
    a = joined(ranks, "A_local", 1)
    for rank in ranks:
        close(rank.result, a @ wide(rank, "B"), 1e-5)
        close(rank.oracle, a @ wide(rank, "B"), 1e-12)


def test_gemm_allgather_puts_ranks_products_side_by_side(gathered):
    ranks = gathered("gemm_allgather", 3, M=8, N=25, K=16)
    expected = torch.cat([wide(rank, "A") @ wide(rank, "B") for rank in ranks], dim=1)
    assert expected.shape == (8, 24)
    for rank in ranks:
        close(rank.result, expected, 1e-5)
        close(rank.oracle, expected, 1e-12)


def test_combined_gemms_run_own_mlp_on_own_rows(gathered):
    ranks = gathered("combined_sharded_gemms", 3, M=16, H=20, F=24)
    x = joined(ranks, "x_local", 1)
    assert x.shape == (18, 21)
    for rank in ranks:
        inner = x.chunk(3)[rank.rank] @ wide(rank, "W1")
        expected = (inner / (1 + torch.exp(-inner))) @ wide(rank, "W2")
        close(rank.result, expected, 1e-5)
        close(rank.oracle, expected, 1e-12)


def test_gemm_reducescatter_keeps_row_blocks_of_whole_product(gathered):
    ranks = gathered("gemm_reducescatter", 4, M=24, N=20, K=32)
    whole = joined(ranks, "A_local", 1) @ joined(ranks, "B_local", 0)
    for rank in ranks:
        close(rank.result, whole.chunk(4)[rank.rank], 1e-5)
        close(rank.oracle, whole.chunk(4)[rank.rank], 1e-12)


def test_tp_rms_norm_divides_by_norm_of_token(gathered):
    ranks = gathered("tp_rms_norm", 3, M=64, N=12)
    x = joined(ranks, "local_hidden_states", 1)
    expected = x / torch.sqrt((x**2).mean(dim=1, keepdim=True) + 1e-5) * joined(ranks, "local_weight", 0)
    assert (x == 0).all(dim=1).any(), "no token of zeros was drawn"
    for rank, slice_ in zip(ranks, expected.chunk(3, dim=1), strict=True):
        close(rank.result, slice_, 1e-5)
        close(rank.oracle, slice_, 1e-12)


# The magnitudes of E4M3 up to 448: 0, subnormal k/512, and (8 + mantissa) * 2^exponent.
E4M3 = torch.tensor(
    [k / 512 for k in range(8)] + [(8 + m) * 2.0 ** (e - 10) for e in range(1, 16) for m in range(8)][:-1],
    dtype=torch.float64,
)


@pytest.mark.parametrize(("preset", "dtype"), [("tiny", "bfloat16"), ("tiny", "float32"), ("paper", "bfloat16")])
def test_blocked_fp8_quantize_finds_the_nearest_code(gathered, preset, dtype):
    ranks = gathered("blocked_fp8_quantize", 2, dtype=dtype, preset=preset, M=12, N=512)
    assert E4M3[-1] == 448
    x = joined(ranks, "local_tensor", 0).view(24, 4, 128)
    scales = x.abs().amax(dim=-1) / 448
    exact = (x / torch.where(scales == 0, 1.0, scales).unsqueeze(-1)).view(24, 512)
    distance = (exact.abs().unsqueeze(-1) - E4M3).abs()
    nearest = E4M3[distance.argmin(dim=-1)] * exact.sign()
    two = distance.sort(dim=-1).values[..., :2]
    assert ((two[..., 1] - two[..., 0]) > 1e-4 * two[..., 0]).all(), "an element sits on a rounding boundary"
    for rank in ranks:
        codes, found = rank.result
        assert codes.dtype == torch.float8_e4m3fn
        assert found.dtype == torch.float32
        assert torch.equal(codes.double(), nearest)
        torch.testing.assert_close(found.double(), scales, rtol=2e-7, atol=0)
        torch.testing.assert_close(rank.oracle[1], scales, rtol=1e-15, atol=0)


@pytest.mark.parametrize("preset", ["tiny", "paper"])
def test_blocked_fp8_dequantize_scales_each_chunk_run(gathered, preset):
    ranks = gathered("blocked_fp8_dequantize", 3, dtype="bfloat16", preset=preset, M=4, N=96)
    for rank in ranks:
        for source in ranks:
            codes, scales = source.tensors["local_y"][rank.rank], source.tensors["local_s"][rank.rank]
            if codes.dtype == torch.uint8:
                codes = codes.view(torch.float8_e4m3fn)
            element = torch.arange(4 * 96)
            expected = codes.flatten().float() * scales.float()[element // 128]
            assert torch.equal(rank.result[source.rank].flatten(), expected)
        assert rank.result.dtype == torch.float32


@pytest.mark.parametrize("world", [1, 3])
def test_gemm_allreduce_is_product_of_joined_slices(gathered, world):
    ranks = gathered("gemm_allreduce", world)
    a = torch.cat([rank.tensors["A_local"] for rank in ranks], dim=1).double()
    b = torch.cat([rank.tensors["B_local"] for rank in ranks], dim=0).double()
    for rank in ranks:
        torch.testing.assert_close(rank.result.double(), a @ b, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(rank.oracle, a @ b)


@pytest.mark.parametrize("world", [1, 3])
def test_rms_norm_of_the_averaged_rows(gathered, world):
    ranks = gathered("reducescatter_fused_rmsnorm", world, M=12, N=40)
    mean = sum(rank.tensors["rs_input_1d"].double() for rank in ranks) / world
    gamma = ranks[0].tensors["gamma"].double()
    rows = mean.view(world, -1, gamma.numel())
    expected = rows / (rows.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * gamma
    for rank in ranks:
        torch.testing.assert_close(rank.oracle, expected[rank.rank])
        torch.testing.assert_close(rank.result.double(), expected[rank.rank], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("world", [1, 3])
def test_gemv_decode_is_the_whole_projection(gathered, world):
    ranks = gathered("gemv_decode", world, M=2048, N=128)
    weight = torch.cat([rank.tensors["weight_shard"] for rank in ranks]).double()
    bias = torch.cat([rank.tensors["bias_shard"] for rank in ranks]).double()
    expected = ranks[0].tensors["hidden_states"].double() @ weight.T + bias
    for rank in ranks:
        torch.testing.assert_close(rank.oracle, expected)
        torch.testing.assert_close(rank.result.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("world", "seed"), [(1, 0), (2, 3), (4, 2), (6, 1)])
def test_attention_layer_of_all_heads_and_all_rows(gathered, world, seed):
    ranks = gathered("ring_attention_tp", world, seed=seed)
    sizes = ranks[0].sizes
    causal, scaled = ranks[0].tensors["mode"].tolist()
    scale = (1.5 if scaled else 1.0) / math.sqrt(sizes.d)
    x = torch.cat([ranks[c * sizes.tp].tensors["hidden_states"] for c in range(sizes.cp)], dim=1).double()
    total = 0
    for t in range(sizes.tp):
        w_qkv, w_o = (ranks[t].tensors[name].double() for name in ("w_qkv", "w_o"))
        heads = (x @ w_qkv.T).view(*x.shape[:2], 3, sizes.H_l, sizes.d).permute(2, 0, 3, 1, 4)
        context = functional.scaled_dot_product_attention(*heads, is_causal=bool(causal), scale=scale)
        total = total + context.transpose(1, 2).flatten(2) @ w_o.T
    for rank in ranks:
        expected = total.chunk(sizes.cp, dim=1)[rank.rank // sizes.tp]
        torch.testing.assert_close(rank.oracle, expected)
        torch.testing.assert_close(rank.result.double(), expected, rtol=1e-3, atol=1e-4)
