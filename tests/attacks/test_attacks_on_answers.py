"""Attacks on answers, and on the clock: kernels that did not compute what they return, or are timed at less than they take."""

from pathlib import Path

import pytest

from benchmarks.attacks.attack_suite import read_kernels
from sandbox.protocol.events import RankChecked
from sandbox.protocol.verdict import Verdict

pytestmark = pytest.mark.slow
ATTACKS = "AT"
FOLDER = Path(__file__).parent


def test_an_attack_gets_its_verdict(judged, kernel_name):
    judged(kernel_name)


def test_an_argument_is_called_as_the_signature_does(judged):
    assert judged("a19_mutates_a_count").result.failure.message == (
        "solution wrote to its argument n_masked_patches_tensor"
    )


def test_what_is_off_as_whole_names_no_element(judged):
    failure = judged("a12_off_as_a_whole").result.failure
    assert failure.message.startswith("the relative RMS error of output out exceeds its limit (")
    assert (failure.index, failure.expected, failure.got) == (None, None, None)


def test_verdict_and_ranks_show_same_wrong_element(referee):
    kernel = next(kernel for kernel in read_kernels(FOLDER) if kernel.name == "a12_fp8_wire")
    failure = referee.judge(referee.setting(kernel.problem), kernel.source, rounds=1).failure
    (shown,) = [event for event in referee.events if isinstance(event, RankChecked) and event.rank == failure.rank]
    output = next(output for output in shown.outputs if not output.ok)
    assert (output.first_wrong, output.expected, output.got) == (failure.index, failure.expected, failure.got)


def test_a_wrong_element_is_named(judged):
    failure = judged("a05_one_wrong_element").result.failure
    assert failure.rank == 1
    assert failure.index == [127, 255]
    assert failure.output == "out"
    assert abs(float(failure.got) - float(failure.expected) - 1) < 0.1


CASES = [
    ("known_scales", "tp_rms_norm", 4, {"M": 256, "N": 2048}),
    ("always_clips", "clip_grad_norm_no_ep", 2, {}),
    ("three_bytes", "physicsnemo_distributed_rfft", 2, {}),
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
"""Kernels that leave out what values of inputs would hide, at sizes at which rounding and averages help them most.
`make test` has the first."""


@pytest.mark.parametrize(
    ("name", "slug", "world", "sizes"),
    [CASES[0], *(pytest.param(*case, marks=pytest.mark.further) for case in CASES[1:])],
)
def test_a_kernel_that_leaves_something_out_is_wrong(referee, name, slug, world, sizes):
    source = (FOLDER / "shortcuts" / f"{name}.py").read_text(encoding="utf-8")
    result = referee.judge(referee.setting(slug, world, **sizes), source, rounds=1)
    assert result.verdict in (Verdict.WRONG_RESULT, Verdict.NONFINITE), result.detail
