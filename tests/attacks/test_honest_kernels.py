"""Honest twins of the attacks pass. Kernels with plain mistakes get the verdict that names the mistake."""

import pytest

from benchmarks.attacks.attack_suite import TWIN, AttackKernel

pytestmark = pytest.mark.slow


def covers(kernel: AttackKernel) -> bool:
    return kernel.attack in (TWIN, "-")


def test_a_kernel_gets_its_verdict(judged, kernel_name):
    judged(kernel_name)
