"""Compares house kernels with the oracle, on every kind of rank: sizes, error limits and errors."""

from typing import Any

import torch

from problems.specification import Problem
from sandbox.memory.trees import flatten
from sandbox.rank.problem_code import ProblemCode

ODD = {"M": 5, "N": 7, "K": 3}
ROUNDINGS = {"bfloat16": 0.02, "float16": 0.002, "float32": 1e-5, "float64": 1e-13}
"""Largest allowed relative error, by dtype."""
SENSITIVE = {"importance_sampling_loss": 4}
"""Factors on that limit where results multiply rounding errors: ratios are exponentials of rounded logits."""
LARGE = {"M": 211, "N": 313, "K": 33}
"""Sizes larger than what is summed in one step, and no multiple of any world size."""


def read_sizes(text: str) -> dict[str, list[dict[str, int]]]:
    """Reads settings of sizes by problem. A line: problems, then settings between bars; it goes on in indented lines."""
    found = {}
    for line in text.strip().replace("\n ", " ").splitlines():
        slugs, _, settings = line.partition(":")
        named = [dict(size.split("=") for size in each.split()) for each in settings.split("|")]
        numbers = [{name: int(size) for name, size in each.items()} for each in named]
        found |= dict.fromkeys(slugs.split(), numbers)
    return found


SIZES = read_sizes("""
ring_attention_backward_dp: M=3 N=18 H=3 d=7 | M=2 N=211 H=5 d=40
magi1_cso_async_attention: R=2 Dh=7 Hq=8 Hk=4 c=5 window=1 | R=5 Dh=16 Hq=24 Hk=8 c=59 window=3
ring_attention_pp ring_attention_tp: M=3 N=18 H=4 d=8 D=21 | M=2 N=211 H=8 d=40 D=200
opensora_conv3d_allreduce: B=2 Co=17 time=4 height=5 width=7 | B=1 Co=240 time=4 height=6 width=5 stride=2 groups=2
dinov2_distributed_knn: Q=3 D=5 bank=101 T_least=20 k=7 | Q=11 D=72 bank=6000 k=100
ring_attention: M=3 N=27 H=3 d=7 | M=2 N=211 H=5 d=40
fused_moe_fwd fused_moe_fwd_lora: M=5 N=29 K=3 | M=211 N=313 E=40 K=8
moe_ep_balanced moe_ep_wide: M=5 N=7 | M=211 N=313
rope_allgather: M=64 N=640 dim=22 | M=192 N=640
ulysses_all_to_all_tensor_primitive: M=120 N=4 | M=840 N=60
fused_adam_grad_unshard_allgather: M=5 max_p=101 | M=700 max_p=4097
ddp zero1_optimizer_shard zero2_optimizer_shard_grad fsdp_step_e2e: M=5 N=17 | M=97 N=96
allgather_gemm allgather_gemm_AT gemm_reducescatter: M=40 N=7 K=40 | M=200 N=313 K=120
fsdp_and_tp: M=5 N=37 | M=256 N=200
conv2d_boundary_exchange: C=5 rows=16 width=7 padding=3 stride=2 | C=33 rows=64 width=21 stride=3
blocked_fp8_quantize: M=5 N=56 block=8 | M=37 N=1024 block=128
blocked_fp8_dequantize: M=3 N=14 block=2 | M=37 N=500 block=4
gemm_allgather: M=5 N=11 K=3 | M=211 N=313 K=33
fp8_reduce_scatter_grads fp8_allgather_params: M=5 max_P=101 | M=700 max_P=23001
reducescatter_fused_rmsnorm: M=5 N=47 | M=64 N=3001 max_H=9000
load_balancing_loss_fn: M=35 B=5 L=3 E=13 K=4 | M=211 B=1 L=1 E=70 K=1
gemv_decode: M=77 N=201 min_v=7 | M=5000 N=130 min_v=1
moe_epgroupgemm_lora_backward: N=5 R=3 | N=1001 R=7
vocab_parallel_cross_entropy_loss: B=3 S=5 V=840 | B=1 S=211 V=5040
vocab_parallel_log_prob_topk vocab_parallel_log_prob_topk_chunked vocab_parallel_log_prob_topk_chunked_backward: V=2520
    K=3 | V=840 K=1000 max_B=3
distributed_sample_sort: n=13 M=211 | n=2011 M=16000
magi1_tile_parallel_vae_decode: B=2 C=2 T=3 H=5 Wd=11 lh=4 lw=5 us=3 | T=11 H=19 Wd=40
sam3_allgather_iou_suppression: n=5 H=13 V=23 | n=11 H=33 V=31
clip_grad_norm_ep: M=5 N=7 T=3 | M=211 N=313 T=1
physicsnemo_distributed_rfft: B=3 M=37 N=50 | B=2 M=211 N=313
physicsnemo_distributed_irfft: B=3 C=1 H=120 Wd=120 | B=1 C=2 H=240 Wd=840
tp_muon_orthogonalization: m=37 c=51 | m=200 c=120
openclip_contrastive_loss: M=37 N=50 | M=600 N=24
moe_pre_all2all moe_post_all2all: M=5 N=7 E=8 K=3 | M=211 N=313 E=40 K=5
moe_token_preprocess: M=5 E=8 K=3 | M=2011 E=40 K=5
gnn_sparse_feature_fetch_projection: nodes=101 D=7 Q=61 | nodes=5000 D=40 Q=900
gnn_feature_exchange_all2all_backward: M=300 h=3 | M=2100 h=72
gnn_sparse_embedding_all2all: n=7 H=5 nodes=100 | n=1500 H=24 nodes=9000
deepmd_kalman_filter_optimizer: L=1 n=5 | L=15 n=24
torchrec_kjt_all2all: B=9 M=9 length=40 variant=2 | B=30 M=30 K=8 length=2 variant=3
hyena_forward_cp: G=8 dim=1 S=6 T=9 | B=2 G=8 dim=3 S=64 T=600
fla_kimi_delta_attention_cp_tp: B=1 S=5 H=3 K=7 V=5 | B=2 S=37 H=2 K=66 V=20
fla_gated_deltanet_cp: B=1 S=5 Hq=2 Hv=4 K=7 V=5 | B=2 S=37 Hq=2 Hv=2 K=66 V=20
gnn_neighbor_sampling: nodes=101 seeds=7 seeds_min=1 hops=2 fanout=3 | nodes=9000 seeds=300 seeds_min=300 hops=4
    fanout=4
gsplat_3d_gaussian_splatting: n=7 cameras=1 | n=1500 cameras=3
torchharmonics_spherical_convolution: B=1 C=3 O=3 K=1 lat=5 rotation=1 groups=1 span=3 | B=2 C=6 O=9 K=5 lat=41
    rotation=2 groups=3 span=5
hyena_conv1d_boundary_exchange: B=2 D=3 C=17 K=12 | B=1 D=7 C=40 K=5
""")
"""Odd and large sizes of problems whose sizes have other names or rules."""

OF_BASELINE = {"dinov2_distributed_knn"}
"""Problems compared with the baseline, not the oracle: rounding to the run dtype decides their integer order."""


def wanted_leaves(
    code: ProblemCode, tensors: Any, setting: Any, facts: tuple[Any, ...]
) -> list[tuple[str, torch.Tensor]]:
    """The correct results for these inputs, in canonical order (collective)."""
    by_baseline = code.problem.slug in OF_BASELINE
    result = code.call(code.baseline, tensors, setting) if by_baseline else code.oracle(tensors, setting)
    return real_leaves(code.canonical(result, setting, facts))


def sizes_of(problem: Problem) -> list[dict[str, int]]:
    """Odd sizes and large sizes, for the names that the problem has."""
    known = problem.presets["tiny"]
    return [
        {name: size for name, size in sizes.items() if name in known} for sizes in SIZES.get(problem.slug, (ODD, LARGE))
    ]


def off(problem: Problem, dtype: str, got: torch.Tensor, wanted: torch.Tensor) -> float:
    """The error of one output as a multiple of the allowed error. If results must be exact: 0 or infinite."""
    if got.shape != wanted.shape:
        return float("inf")
    if "*" in problem.check.exact or not got.is_floating_point() or got.element_size() == 1 or dtype not in ROUNDINGS:
        return 0.0 if same(got.double(), wanted.double()) else float("inf")
    return relative(got, wanted) / (SENSITIVE.get(problem.slug, 1) * ROUNDINGS[dtype])


def real_leaves(result: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors of a result by name, complex ones as pairs of real numbers."""
    return [(name, torch.view_as_real(t) if t.is_complex() else t) for name, t in flatten(result)[1]]


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_floating_point() and a.element_size() == 1:  # compared as float32
        a, b = a.float(), b.float()
    return a.shape == b.shape and torch.equal(a.nan_to_num(nan=1e30), b.nan_to_num(nan=1e30))


def relative(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """The error relative to the norm, less half a step of the dtype's subnormal numbers per element."""
    limits = torch.finfo(got.dtype)
    steps = limits.smallest_normal * limits.eps / 2 * got.numel() ** 0.5
    difference = torch.where(got == wanted, 0.0, got.double() - wanted.double())  # equal infinities have no error
    size = float(wanted.double().nan_to_num(posinf=0.0, neginf=0.0).norm())
    return max(float(difference.norm()) - steps, 0.0) / max(size, 1e-30)
