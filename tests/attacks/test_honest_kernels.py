"""Honest twins of the attacks, which pass, and plain mistakes, which are named."""

import pytest

from benchmarks.attacks.attack_suite import TWIN, AttackKernel

pytestmark = pytest.mark.slow


def covers(kernel: AttackKernel) -> bool:
    return kernel.attack in (TWIN, "-")


def test_a_kernel_gets_its_verdict(judged, kernel_name):
    judged(kernel_name)
