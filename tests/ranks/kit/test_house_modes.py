"""Compares house kernels with baselines in modes of the cards that no drawn input uses, also on emulated GPUs."""

import shutil
import types
from typing import Any

import cuda_on_cpu as emulation
import pytest
import torch
from waiting import PATIENCE_S

from problems.catalogue import load_catalogue

PROBLEMS = {p.slug: p for p in load_catalogue().problems}
WORLD = 2
pytestmark = pytest.mark.long


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
        given = _real(rank, WORLD, 9, 64).to(codes), _real(rank, WORLD, 576 // block).to(scales)
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


@pytest.mark.parametrize("emulated", [False, True], ids=["torch", "cuda"])
def test_house_kernel_agrees_with_baseline_in_every_mode(in_ranks, emulated):
    if emulated and shutil.which("g++") is None:
        pytest.skip("the emulation is compiled by g++")

    def work(rank: int, world: int) -> list[tuple[Any, ...]]:
        emulation.forget_blocks()
        houses: dict[str, types.ModuleType] = {}
        wrong: list[tuple[Any, ...]] = []
        for slug, arguments in _calls(rank):
            source = PROBLEMS[slug].house_source
            if source is None:
                continue
            if slug not in houses and emulated:
                houses[slug] = emulation.as_on_gpus(source, f"house_of_{slug}")
            elif slug not in houses:
                houses[slug] = types.ModuleType(slug)
                exec(source, houses[slug].__dict__)
            baseline = types.ModuleType("baseline")
            exec((PROBLEMS[slug].folder / "baseline.py").read_text(), baseline.__dict__)
            kept = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
            got = houses[slug].solution(*arguments)
            told = (slug, [a for a in arguments if not isinstance(a, torch.Tensor)])
            if arguments[0].numel() == 0:  # no CPU library transforms an empty tensor
                if got.numel() or got.dim() != arguments[0].dim():
                    wrong.append((*told, got.shape))
                continue
            wanted = baseline.solution(*kept)
            if (got.shape, got.dtype, got.is_contiguous()) != (wanted.shape, wanted.dtype, True):
                wrong.append((*told, got.shape, wanted.shape, got.dtype, got.stride()))
                continue
            room = 2e-2 if got.dtype == torch.bfloat16 else 2e-6
            error = float((got - wanted).abs().double().norm())
            if not error <= room * float(wanted.abs().double().norm()):
                wrong.append((*told, error, float(wanted.abs().double().norm())))
            if not all(torch.equal(a, b) for a, b in zip(arguments, kept, strict=True) if torch.is_tensor(a)):
                wrong.append((*told, "an argument has changed"))
        return wrong

    for found in in_ranks(WORLD, work, timeout=PATIENCE_S):
        assert not found, found[:3]
