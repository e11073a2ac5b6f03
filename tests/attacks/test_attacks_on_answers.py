"""Attacks on answers: kernels that return something wrong, or something that they did not compute."""

from pathlib import Path

import pytest

from benchmarks.attacks.attack_suite import read_kernels
from sandbox.protocol.events import RankChecked

pytestmark = pytest.mark.slow
ATTACKS = "A"
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
