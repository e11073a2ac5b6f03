"""Attacks on answers: kernels that return something wrong, or something that they have not computed."""

import pytest

from benchmarks.attacks.attack_suite import AttackKernel

pytestmark = pytest.mark.slow


def covers(kernel: AttackKernel) -> bool:
    return kernel.attack[0] == "A"


def test_an_attack_gets_its_verdict(judged, kernel_name):
    judged(kernel_name)


def test_a_wrong_element_is_named(judged):
    failure = judged("a05_one_wrong_element").result.failure
    assert failure.rank == 1
    assert failure.index == [127, 255]
    assert failure.output == "out"
    assert abs(float(failure.got) - float(failure.expected) - 1) < 0.1
