"""Attacks on the clock: kernels that try to be timed at less than they take."""

import pytest

from benchmarks.attacks.attack_suite import AttackKernel

pytestmark = pytest.mark.slow


def covers(kernel: AttackKernel) -> bool:
    return kernel.attack[0] == "T"


def test_an_attack_gets_its_verdict(judged, kernel_name):
    judged(kernel_name)
