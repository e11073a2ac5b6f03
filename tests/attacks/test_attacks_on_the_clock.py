"""Attacks on the clock: kernels that try to be timed at less than they take."""

import pytest

pytestmark = pytest.mark.slow
ATTACKS = "T"


def test_an_attack_gets_its_verdict(judged, kernel_name):
    judged(kernel_name)
