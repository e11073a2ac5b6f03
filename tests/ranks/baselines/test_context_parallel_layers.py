"""Compares context-parallel layers with the formulas of their cards, computed on one process from all ranks' inputs."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from problems.setting import RankSetting
from problems.shared.ring import draw_mode
from problems.shared.zigzag import natural_order, zigzag_shards


def close(result, expected, tolerance=2e-5):
    """Asserts a relative RMS error within tolerance, and no element far off."""
    assert result.shape == expected.shape
    difference = result.double() - expected
    assert float(difference.norm()) <= tolerance * float(expected.norm())
    assert float(difference.abs().max()) <= 20 * tolerance * float(expected.abs().max())


def zigzag_chunks(shards, dim):
    """Joins the two chunks of every shard to the whole sequence, in natural order."""
    halves = [shard.chunk(2, dim=dim) for shard in shards]
    return torch.cat([first for first, _ in halves] + [second for _, second in reversed(halves)], dim=dim)


def test_zigzag_helpers_are_inverse_and_follow_the_definition():
    sequence = torch.arange(24).view(1, 24)
    shards = zigzag_shards(sequence, dim=1, world=3)
    assert shards[0, 0].tolist() == [0, 1, 2, 3, 20, 21, 22, 23]
    assert shards[0, 2].tolist() == [8, 9, 10, 11, 12, 13, 14, 15]
    assert torch.equal(natural_order(shards, dim=1), sequence)
    assert torch.equal(zigzag_chunks(list(shards.unbind(1)), dim=1), sequence)


@pytest.mark.parametrize(("world", "taps"), [(2, 7), (3, 64)])
def test_short_convolution_is_one_over_whole_sequence(gathered, world, taps):
    ranks = gathered("hyena_conv1d_boundary_exchange", world, K=taps)
    whole = zigzag_chunks([rank.tensors["x"] for rank in ranks], dim=2).double()
    weight = ranks[0].tensors["weight"].double()
    padded = torch.nn.functional.pad(whole, (taps - 1, 0))
    expected = sum(weight[:, 0, j, None] * padded[..., j : j + whole.shape[-1]] for j in range(taps))
    for rank, part in zip(ranks, zigzag_shards(expected, dim=2, world=world).unbind(2), strict=True):
        close(rank.result, part)
        torch.testing.assert_close(rank.oracle, part)


@pytest.mark.parametrize(("world", "taps"), [(1, 64), (2, 128), (4, 100)])
def test_long_convolution_is_the_causal_sum(gathered, world, taps):
    ranks = gathered("hyena_forward_cp", world, T=taps, S=32)
    names = ("x1_seq", "x2_seq", "v_seq")
    x1, x2, v = (zigzag_chunks([rank.tensors[n] for rank in ranks], dim=2).double() for n in names)
    h, bias = ranks[0].tensors["h"].double().repeat_interleave(2, dim=0), ranks[0].tensors["conv_bias"].double()
    z = x2 * v
    length = z.shape[-1]
    assert h.shape[1] <= length
    y = bias[:, None] * z
    for k in range(h.shape[1]):
        y[..., k:] += h[:, k, None] * z[..., : length - k]
    expected = (x1 * y).transpose(1, 2)
    for rank, part in zip(ranks, zigzag_shards(expected, dim=1, world=world).unbind(1), strict=True):
        close(rank.result, part)
        close(rank.oracle, part, 1e-12)


def delta_rule(q, k, v, alpha, strength):
    """The delta rule, token by token: q, k [T, K], v [T, V], alpha [T, K], strength [T] -> [T, V]."""
    state = torch.zeros(k.shape[1], v.shape[1], dtype=q.dtype)
    outputs = []
    for t in range(q.shape[0]):
        state = alpha[t, :, None] * state
        update = strength[t] * (v[t] - state.t() @ k[t])
        state = state + torch.outer(k[t], update)
        outputs.append(state.t() @ q[t])
    return torch.stack(outputs)


@pytest.mark.parametrize(("world", "preset"), [(4, "tiny"), (3, "paper")])
def test_kimi_delta_attention_is_the_recurrence(gathered, world, preset):
    ranks = gathered("fla_kimi_delta_attention_cp_tp", world, preset=preset, S=24, H=2, K=16, V=16)
    tensor_parallel = 2 if world == 4 else 1
    per_path = []
    for path in range(tensor_parallel):
        members = ranks[path::tensor_parallel]
        names = ("q", "k", "v", "g", "beta")
        q, k, v, g, beta = (torch.cat([m.tensors[n] for m in members], dim=1)[0].double() for n in names)
        slope = members[0].tensors["a_log"].double().exp()
        alpha = torch.exp(-5 * torch.sigmoid(slope[:, None] * (g + members[0].tensors["dt_bias"].double().view(2, 16))))
        q, k = q / q.norm(dim=-1, keepdim=True) / 4, k / k.norm(dim=-1, keepdim=True)
        strength = beta.sigmoid()
        heads = [delta_rule(q[:, h], k[:, h], v[:, h], alpha[:, h], strength[:, h]) for h in range(2)]
        per_path.append(torch.stack(heads, dim=1))
    expected = sum(per_path)
    for rank in ranks:
        part = expected.split(24)[rank.rank // tensor_parallel][None]
        close(rank.result, part)
        close(rank.oracle, part, 1e-10)


@pytest.mark.parametrize("world", [1, 2])
def test_gated_deltanet_is_the_recurrence(gathered, world):
    ranks = gathered("fla_gated_deltanet_cp", world, B=1, S=40)
    names = ("q", "k", "v", "gate", "beta")
    q, k, v, gate, beta = (torch.cat([r.tensors[n] for r in ranks], dim=1)[0].double() for n in names)
    a_log, dt_bias = (torch.cat([r.tensors[n] for r in ranks]).double() for n in ("a_log", "dt_bias"))
    alpha = torch.exp(-a_log.exp() * torch.log1p(torch.exp(gate + dt_bias)))
    q, k = q / q.norm(dim=-1, keepdim=True) / 4, k / k.norm(dim=-1, keepdim=True)
    shared = v.shape[1] // q.shape[1]
    heads = [
        delta_rule(q[:, j // shared], k[:, j // shared], v[:, j], alpha[:, j, None].expand(-1, 16), beta[:, j])
        for j in range(v.shape[1])
    ]
    for rank, part in zip(ranks, torch.stack(heads, dim=1).split(40), strict=True):
        close(rank.result, part[None])
        close(rank.oracle, part[None], 1e-10)


@pytest.mark.parametrize(("world", "kv_heads"), [(3, 2), (4, 2), (2, 4)])
def test_range_attention_sees_its_interval_of_keys(gathered, world, kv_heads):
    ranks = gathered("magi1_cso_async_attention", world, Hk=kv_heads)
    sizes = ranks[0].sizes
    block, kept = sizes.block, sizes.tokens

    def ranges(name):
        """[R, W*b, heads, channels]: the tokens of every range, in rank order."""
        return torch.cat([r.tensors[name].double().unflatten(0, (sizes.R, block)) for r in ranks], dim=1)

    query, packed = ranges("query"), ranges("key_value")[:, :kept].flatten(0, 1)
    of_head = torch.arange(sizes.heads) * packed.shape[1] // sizes.heads
    key, value = packed[:, of_head].split(sizes.Dh, dim=-1)
    outputs = []
    for i, (start, end) in enumerate(ranks[0].tensors["k_ranges"].tolist()):
        scores = torch.einsum("qhd,khd->hqk", query[i], key[start:end]) / sizes.Dh**0.5
        outputs.append(torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), value[start:end]))
    expected = torch.stack(outputs).unflatten(1, (world, block))
    for rank in ranks:
        part = expected[:, rank.rank].flatten(0, 1)
        close(rank.result, part)
        close(rank.oracle, part, 1e-10)


@pytest.mark.parametrize(("world", "seed"), [(1, 0), (2, 2), (3, 3), (4, 1)])
def test_ring_attention_is_attention_of_the_joined_sequence(gathered, world, seed):
    ranks = gathered("ring_attention", world, seed=seed)
    causal, scaled = ranks[0].tensors["mode"].tolist()
    scale = (1.5 if scaled else 1.0) / math.sqrt(ranks[0].sizes.d)
    q, k, v = (torch.cat([rank.tensors[name] for rank in ranks], dim=1).double().transpose(1, 2) for name in "qkv")
    whole = functional.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), scale=scale)
    for rank, expected in zip(ranks, whole.transpose(1, 2).chunk(world, dim=1), strict=True):
        torch.testing.assert_close(rank.oracle, expected)
        torch.testing.assert_close(rank.result.double(), expected, rtol=1e-4, atol=1e-5)


def test_modes_cover_masks_and_scales():
    meaningful = RankSetting(0, 1, SimpleNamespace(), torch.float32, torch.device("cpu"))
    modes = {tuple(draw_mode(meaningful.replace(trial=trial)).tolist()) for trial in range(12)}
    assert modes == {(0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize(("world", "seed"), [(1, 0), (2, 1), (4, 2), (4, 3)])
def test_every_stage_returns_its_layer_of_the_stack(gathered, world, seed):
    ranks = gathered("ring_attention_pp", world, seed=seed)
    sizes = ranks[0].sizes
    causal, scaled = ranks[0].tensors["mode"].tolist()
    scale = (1.5 if scaled else 1.0) / math.sqrt(sizes.d)
    x = torch.cat([rank.tensors["hidden_states"] for rank in ranks[: sizes.cp]], dim=1).double()
    for stage in range(sizes.pp):
        members = ranks[stage * sizes.cp : (stage + 1) * sizes.cp]
        w_qkv, w_o = (members[0].tensors[name].double() for name in ("w_qkv", "w_o"))
        heads = (x @ w_qkv.T).view(*x.shape[:2], 3, sizes.H, sizes.d).permute(2, 0, 3, 1, 4)
        context = functional.scaled_dot_product_attention(*heads, is_causal=bool(causal), scale=scale)
        x = context.transpose(1, 2).flatten(2) @ w_o.T
        for rank, expected in zip(members, x.chunk(sizes.cp, dim=1), strict=True):
            torch.testing.assert_close(rank.oracle, expected)
            torch.testing.assert_close(rank.result.double(), expected, rtol=1e-3, atol=1e-3)


def rotated(u, cos, sin):
    """The definition element by element: u[i] cos[i] + rho(u)[i] sin[i]."""
    half = u.shape[-1] // 2
    partner = torch.roll(u, half, dims=-1)
    sign = torch.where(torch.arange(2 * half) < half, -1.0, 1.0).double()
    return u * cos.unsqueeze(2) + sign * partner * sin.unsqueeze(2)


@pytest.mark.parametrize("seed", [1, 2])
def test_rope_allgather_rotates_and_joins_the_sequence(gathered, seed):
    ranks = gathered("rope_allgather", 2, seed=seed, M=128, N=512, dim=16)
    tensors = [{name: t.double() for name, t in rank.tensors.items()} for rank in ranks]
    for index, name in enumerate(("q_local", "k_local")):
        expected = torch.cat([rotated(t[name], t["cos_local"], t["sin_local"]) for t in tensors], dim=1)
        for rank in ranks:
            torch.testing.assert_close(rank.result[index].double(), expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(rank.oracle[index], expected)


def test_real_tables_turn_pairs_and_keep_their_length(gathered):
    ranks = gathered("rope_allgather", 2, seed=2, M=64, N=512, dim=16)
    cos = torch.cat([rank.tensors["cos_local"] for rank in ranks], dim=1).double()
    sin = torch.cat([rank.tensors["sin_local"] for rank in ranks], dim=1).double()
    q = torch.cat([rank.tensors["q_local"] for rank in ranks], dim=1).double()
    pairs = torch.complex(*q.chunk(2, dim=-1))
    turned = pairs * torch.complex(cos[..., :8], sin[..., :8]).unsqueeze(2)
    result = torch.complex(*ranks[0].result[0].double().chunk(2, dim=-1))
    torch.testing.assert_close(result, turned, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(result.abs(), pairs.abs(), rtol=1e-5, atol=1e-5)
    step = torch.complex(cos, sin).angle().diff(dim=1)[0, :, 0]
    torch.testing.assert_close(step.remainder(2 * torch.pi), torch.ones(7).double(), rtol=1e-4, atol=1e-4)
