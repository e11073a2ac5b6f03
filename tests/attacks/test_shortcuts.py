"""Kernels that leave out what the values of inputs would hide, at sizes at which rounding and averages help them most."""

from pathlib import Path

import pytest

from sandbox.protocol.verdict import Verdict

pytestmark = pytest.mark.slow

SHORTCUTS = Path(__file__).parent / "shortcuts"
CASES = [
    ("known_scales", "tp_rms_norm", 4, {"M": 256, "N": 2048}),
    ("always_clips", "clip_grad_norm_no_ep", 2, {}),
    ("counts_padding", "load_balancing_loss_fn", 2, {"M": 8192}),
    ("no_weight_decay", "fsdp_step_e2e", 2, {}),
    ("few_columns", "tp_muon_orthogonalization", 2, {"m": 128, "c": 256}),
    ("few_entries", "vocab_parallel_log_prob_topk_chunked_backward", 2, {"V": 13_440, "K": 50}),
    ("recent_tokens", "fla_gated_deltanet_cp", 2, {"B": 1, "S": 512, "Hq": 2, "Hv": 2, "K": 64, "V": 64}),
    ("early_taps", "hyena_forward_cp", 2, {"B": 1, "G": 16, "dim": 1, "S": 2048, "T": 16_384}),
    ("expected_sum", "vocab_parallel_cross_entropy_loss", 2, {"B": 2, "S": 64, "V": 131_072}),
    ("few_texts", "openclip_contrastive_loss", 2, {"M": 1024, "N": 256}),
    ("no_maximum", "vocab_parallel_cross_entropy_loss", 2, {}),
]
"""`make test` has the first."""


@pytest.mark.parametrize(
    ("name", "slug", "world", "sizes"),
    [CASES[0], *(pytest.param(*case, marks=pytest.mark.further) for case in CASES[1:])],
)
def test_a_kernel_that_leaves_something_out_is_wrong(referee, name, slug, world, sizes):
    source = (SHORTCUTS / f"{name}.py").read_text(encoding="utf-8")
    result = referee.judge(referee.setting(slug, world, **sizes), source, rounds=1)
    assert result.verdict in (Verdict.WRONG_RESULT, Verdict.NONFINITE), result.detail
