"""Runs the CUDA of house kernels thread by thread on CPU ranks: many calls at odd sizes, compared with the oracle."""

import shutil
import time
import types
from typing import Any

import cuda_on_cpu as emulation
import pytest
import torch
from house_agreement import off, read_sizes, real_leaves, same, wanted_leaves
from waiting import PATIENCE_S

from problems.catalogue import load_catalogue
from sandbox.rank.problem_code import ProblemCode

PROBLEMS = {p.slug: p for p in load_catalogue().problems}
HOUSE = {
    slug: p
    for slug, p in PROBLEMS.items()
    if p.house_source and any(text in p.house_source for text in ("cuda.lazy", "sandbox.kit.blocks."))
}
CALLS = 6
SIZES = read_sizes("""
ring_attention_backward_dp: M=2 N=18 H=3 d=7 | M=1 N=140 H=2 d=24
magi1_cso_async_attention: R=1 Dh=7 Hq=8 Hk=2 c=5 window=1 | R=2 Dh=8 Hq=8 Hk=8 c=13 window=2 | R=5 Dh=16 Hq=12 Hk=4
    c=24 window=3
ring_attention_pp: M=3 N=18 H=2 d=8 D=21 | M=2 N=522 H=8 d=16 D=64
ring_attention_tp: M=3 N=18 H=4 d=8 D=21 | M=2 N=522 H=8 d=16 D=64
ring_attention: M=2 N=9 H=3 d=7 | M=1 N=24 H=2 d=40 | M=1 N=1030 H=3 d=8
fused_moe_fwd: M=5 N=29 K=3 E=12 | M=97 N=40 E=84 K=8
fused_moe_fwd_lora: M=5 N=29 K=3 E=12 R=3 | M=97 N=40 E=12
allreduce: M=5 N=7 | M=600 N=901
rope_allgather: M=64 N=640 dim=22
fsdp_and_tp: M=5 N=37 | M=35 N=41 | M=128 N=40 | M=256 N=33
conv2d_boundary_exchange: C=5 rows=16 width=7 padding=3 stride=2 | C=3 rows=10 width=9 padding=1 stride=3 | B=1 C=9
    rows=14 width=8 padding=2 stride=5 | C=2 rows=3 width=5 padding=2
blocked_fp8_quantize: M=5 N=96 block=16 | M=37 N=1024 block=128 | M=3 N=1024 block=512 | M=3 N=24 block=8
blocked_fp8_dequantize: M=3 N=14 block=2 | M=5 N=100 block=4 | M=37 N=512 block=128
ulysses_all_to_all_tensor_primitive: M=840 N=12
fused_adam_grad_unshard_allgather: M=5 max_p=101 | M=60 max_p=2056
reducescatter_fused_rmsnorm: M=37 N=61 | M=8 N=3001 max_H=9000
fla_kimi_delta_attention_cp_tp: B=1 S=3 H=1 K=7 V=5 | B=2 S=9 H=1 K=72 V=24 | B=1 S=5 H=3 K=130 V=17
fla_gated_deltanet_cp: B=1 S=3 Hq=1 Hv=2 K=7 V=3 | B=2 S=3 Hq=1 Hv=1 K=130 V=5
gnn_neighbor_sampling: nodes=50 seeds=7 seeds_min=1 hops=6 fanout=2 | nodes=3000 seeds=200 seeds_min=20 hops=3
    fanout=4
gsplat_3d_gaussian_splatting: n=3 cameras=1 | n=37 cameras=3 | n=700 cameras=1
torchharmonics_spherical_convolution: B=1 C=3 O=2 K=5 lat=9 rotation=1 groups=1 span=5 | B=2 C=4 O=4 K=2 lat=6
    rotation=1 groups=2 span=4
hyena_conv1d_boundary_exchange: B=2 D=3 C=17 K=12 | B=2 D=9 C=24 K=7 | B=1 D=3 C=8 K=1
tp_rms_norm: M=5 N=7 | M=97 N=600 | M=3 N=3001
gnn_negative_scoring: M=37 K=301
ulysses_attention_e2e: M=64 N=512 D=16 | M=128 N=128 D=37
load_balancing_loss_fn: M=35 B=5 L=3 E=13 K=4 | M=400 B=1 L=1 E=300 K=2 | M=12 B=1 L=66 E=8 K=8
gemv_decode: M=77 N=201 min_v=7 | M=300 N=136 min_v=1
clip_grad_norm_ep: M=5 N=7 T=3 | M=17 N=88 T=40
moe_epgroupgemm_lora_backward: N=5 R=3 | N=11001 R=8
vocab_parallel_cross_entropy_loss: B=3 S=15 V=840 | B=1 S=7 V=50400
grad_acc_loss: M=5 N=7
physicsnemo_distributed_rfft: B=3 M=37 N=50 | B=1 M=16 N=151 | B=2 M=84 N=72
physicsnemo_distributed_irfft: B=3 C=1 H=36 Wd=60 | B=1 C=2 H=12 Wd=36 | B=1 C=1 H=84 Wd=144
tp_muon_orthogonalization: m=48 c=80 | m=37 c=51 | m=5 c=200
openclip_contrastive_loss: M=37 N=50 | M=212 N=24
magi1_tile_parallel_vae_decode: T=5 H=7 Wd=9 | B=2 C=2 T=3 H=5 Wd=11 lh=4 lw=5 us=3
importance_sampling_loss: M=5 N=7 V=900 | M=11 N=24 V=88
opensora_conv3d_allreduce: B=1 Co=12 time=9 height=7 width=9 | B=2 Co=72 time=7 height=8 width=12 stride=2 | B=1 Co=24
    time=5 height=5 width=6 kernel=2 dilation=2 groups=2
dinov2_distributed_knn: Q=9 D=5 bank=300 k=7 | Q=3 D=12 bank=4001 T_most=1500 k=100
dinov2_distributed_sinkhorn_knopp: rows=13 K=61 iterations=1 | rows=33 K=1500 iterations=2 | rows=5 K=5000 | rows=4
    K=5200
embedding_lookup: M=5 N=7 | M=997 N=40
moe_token_preprocess: M=5 E=8 K=3 | M=311 E=120 K=5
moe_pre_all2all moe_post_all2all: M=5 N=7 E=8 K=3 | M=67 N=88 E=40 K=5 | M=130 N=3 E=8 K=8 | M=33 N=1096 E=8 K=1
distributed_sample_sort: n=61 M=400
gnn_sparse_feature_fetch_projection: nodes=101 D=7 Q=61 | nodes=5000 D=40 Q=900
gnn_feature_exchange_all2all_backward: M=300 h=3 | M=2100 h=72
gnn_sparse_embedding_all2all: n=7 H=5 nodes=100 | n=1500 H=24 nodes=9000
deepmd_kalman_filter_optimizer: L=1 n=5 | L=5 n=67 | L=15 n=24
torchrec_kjt_all2all: B=7 M=7 length=3 variant=1 | B=9 M=9 length=40 variant=2 | B=30 M=30 K=8 length=2 variant=3
hyena_forward_cp: B=2 G=4 dim=1 S=6 T=9 | B=2 G=4 dim=3 S=64 T=600 | B=1 G=4 dim=1 S=256 T=100
sam3_allgather_iou_suppression: n=5 H=13 V=23 | n=3 H=16 V=24
vocab_parallel_log_prob_topk vocab_parallel_log_prob_topk_chunked vocab_parallel_log_prob_topk_chunked_backward:
    M=1024 V=2520 K=3 | M=512 V=840 K=200 max_B=3
ddp zero1_optimizer_shard zero2_optimizer_shard_grad fsdp_step_e2e: M=5 N=17 | M=97 N=96
allgather_gemm allgather_gemm_AT gemm_allreduce gemm_reducescatter: M=40 N=7 K=40 | M=120 N=88 K=80
fp8_reduce_scatter_grads fp8_allgather_params: M=5 max_P=101 | M=700 max_P=23001
""")
"""Sizes beside those of the cards: ragged ends, one element, several blocks."""
COMMON = [{"M": 5, "N": 7}, {"M": 97, "N": 88}]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation is compiled by g++"),
]


def test_house_kernels_were_found():
    assert len(HOUSE) >= 17
    assert SIZES.keys() <= PROBLEMS.keys()


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("slug", HOUSE)
def test_it_agrees_with_the_oracle_on_emulated_gpus(in_ranks, slug, world):
    problem = HOUSE[slug]
    if world not in problem.worlds:
        pytest.skip(f"{slug} does not allow {world} ranks")

    def work(rank: int, world: int) -> list[tuple[Any, ...]]:
        emulation.forget_blocks()
        module = emulation.as_on_gpus(problem.house_source, "kernel")
        code = ProblemCode(problem)
        wrong = []
        for sizes in SIZES.get(slug, COMMON):
            named = {name: size for name, size in sizes.items() if name in problem.presets["tiny"]}
            for dtype in problem.dtypes:
                setting = code.setting(problem.sizes("tiny", named), "tiny", dtype, torch.device("cpu"))
                kept: list[tuple[torch.Tensor, torch.Tensor]] = []
                for seed in range(CALLS):
                    tensors = code.draw(setting, seed)
                    before = {name: tensor.clone() for name, tensor in tensors.items()}
                    if seed % world == rank:
                        time.sleep(0.005)  # the other ranks are in their next call
                    where = (sizes, dtype, seed)
                    if not all(same(old, now) for old, now in kept):  # valid until this rank's next call
                        wrong.append((*where, "what the call before returned has changed"))
                    facts = code.facts(tensors, setting)
                    result = code.call(module.solution, tensors, setting)
                    got = real_leaves(code.canonical(result, setting, facts))
                    wanted = wanted_leaves(code, tensors, setting, facts)
                    if not all(same(before[name], tensor) for name, tensor in tensors.items()):
                        wrong.append((*where, "an argument has changed"))
                    for (name, g), (_, w) in zip(got, wanted, strict=True):
                        error = off(problem, dtype, g, w)
                        if not error <= 1.0 or not g.is_contiguous():
                            wrong.append((*where, name, g.shape, w.shape, error))
                    kept = [(g, g.clone()) for _, g in got]
        return wrong

    for found in in_ranks(world, work, timeout=PATIENCE_S):
        assert not found, found[:3]


# --- modes of the cards that no drawn input uses --------------------------------------------------------------


def _real(rank: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank), dtype=dtype)


def _complex(rank: int, *shape: int) -> torch.Tensor:
    return torch.view_as_complex(_real(rank, *shape, 2))


def _calls(rank: int) -> list[tuple[str, tuple[Any, ...]]]:
    """The calls of one of two ranks: (slug, arguments of solution)."""
    rfft, irfft = "physicsnemo_distributed_rfft", "physicsnemo_distributed_irfft"
    muon, siglip = "tp_muon_orthogonalization", "openclip_contrastive_loss"
    calls: list[tuple[str, tuple[Any, ...]]] = [
        (rfft, (_real(rank, 3, 12, 9), (None, None), (1, 2), "backward", None)),
        (rfft, (_real(rank, 3, 12, 9), (16, 24), (-2, -1), "forward", None)),
        (rfft, (_real(rank, 3, 12, 9), (6, 7), (1, 2))),
        (rfft, (_real(rank, 9, 2, 12), (12, 18), (2, 0), "ortho", None)),
        (rfft, (_real(rank, 0, 12, 9), (12, 18), (1, 2), "ortho", None)),
        (irfft, (_complex(rank, 2, 3, 4, 7), (8, 12), (-2, -1), "forward", None)),
        (irfft, (_complex(rank, 2, 3, 5, 4), (10, 6), (2, 3), "backward", None)),
        (irfft, (_complex(rank, 7, 4, 3), (8, 12), (1, 0))),
        (irfft, (_complex(rank, 2, 0, 4, 7), (8, 12), (-2, -1), "ortho", None)),
    ]
    for kind, steps in (("simple", 3), ("polar_express", 8), ("aol", 4), ("quintic", 10), ("quintic", 0)):
        for partition_dim, shape in ((1, (24, 20)), (0, (20, 24))):
            x = _real(rank, *shape).to(torch.bfloat16)
            calls.append((muon, (x, steps, kind, partition_dim, None)))
    calls.append((muon, (_real(rank, 11, 9), 5, "quintic", 1, None)))
    calls.append((muon, (torch.zeros(8, 8, dtype=torch.bfloat16), 5)))
    calls.append((siglip, (_real(rank, 6, 8), _real(rank + 5, 6, 8), 3.0)))
    for group, dtype in ((1000, torch.bfloat16), (7, torch.bfloat16), (1, torch.float32), (600, torch.float32)):
        calls.append(("quantized_grad_allreduce", (_real(rank, 33, 77).to(dtype), group)))
    calls.append((siglip, (_real(rank, 6, 8), _real(rank + 5, 6, 8), 30.0, 5.0, None)))
    half, whole, code = torch.bfloat16, torch.float32, torch.float8_e4m3fn
    for codes, scales, block in (
        (half, half, 8),
        (half, half, 1),
        (half, whole, 4),
        (code, half, 64),
        (whole, whole, 12),
    ):
        given = _real(rank, 2, 9, 64).to(codes), _real(rank, 2, 576 // block).to(scales)
        calls.append(("blocked_fp8_dequantize", (*given, block)))
    for samples, taps in ((32, 33), (5, 40)):  # contiguous shards, not zigzag
        parts = (_real(rank + k, 1, 8, samples) for k in range(3))
        calls.append(("hyena_forward_cp", (*parts, _real(7, 4, taps), _real(8, 8), 4, 2, None, False)))
    for asked in ((7, 0), (100, 40)):  # each rank has its own number of queries
        queries = torch.randint(0, 41, (asked[rank],), generator=torch.Generator().manual_seed(rank))
        rows = _real(5, 41, 3)[21 * rank : 21 * (rank + 1)]
        calls.append(("gnn_sparse_feature_fetch_projection", (rows, queries, _real(rank, 3, 5), 41, None)))
    for batch in (0, 1):  # one batch entry or none
        video = _real(rank, batch, 4, 3, 5, 6), _real(rank + 3, 7, 4, 2, 3, 3), _real(5, 7)
        calls.append(("opensora_conv3d_allreduce", (*video, 1, 0, 1, 1, None)))
        calls.append(("ring_attention", (*(_real(rank + k, batch, 4, 3, 8) for k in range(3)), None, True, None)))
    return calls


def _module(name: str, source: str, emulated: bool = False) -> types.ModuleType:
    if emulated:
        return emulation.as_on_gpus(source, name)
    module = types.ModuleType(name)
    exec(source, module.__dict__)
    return module


@pytest.mark.parametrize("emulated", [False, True], ids=["torch", "cuda"])
def test_house_kernel_agrees_with_baseline_in_every_mode(in_ranks, emulated):
    def work(rank: int, world: int) -> list[tuple[Any, ...]]:
        emulation.forget_blocks()
        houses: dict[str, types.ModuleType] = {}
        wrong: list[tuple[Any, ...]] = []
        for slug, arguments in _calls(rank):
            problem = PROBLEMS[slug]
            if slug not in houses:
                houses[slug] = _module(f"house_of_{slug}", problem.house_source, emulated)
            kept = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
            got = houses[slug].solution(*arguments)
            told = (slug, [a for a in arguments if not isinstance(a, torch.Tensor)], got.shape, got.dtype, got.stride())
            if arguments[0].numel() == 0:  # no CPU library transforms an empty tensor
                if got.numel() or got.dim() != arguments[0].dim():
                    wrong.append(told)
                continue
            wanted = _module("baseline", problem.baseline_source).solution(*kept)
            if (got.shape, got.dtype, got.is_contiguous()) != (wanted.shape, wanted.dtype, True):
                wrong.append((*told, wanted.shape))
                continue
            room = (2e-2 if got.dtype == torch.bfloat16 else 2e-6) * float(wanted.abs().double().norm())
            if not (error := float((got - wanted).abs().double().norm())) <= room:
                wrong.append((*told, error, room))
            if not all(torch.equal(a, b) for a, b in zip(arguments, kept, strict=True) if torch.is_tensor(a)):
                wrong.append((*told, "an argument has changed"))
        return wrong

    for found in in_ranks(2, work, timeout=PATIENCE_S):
        assert not found, found[:3]
