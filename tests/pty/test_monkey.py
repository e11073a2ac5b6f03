"""Random keys, pastes and sizes in the real app."""

import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_a_minute_of_random_keys(run_benchmark) -> None:
    played = run_benchmark("monkey", "--screen", "kernel", "--shorten", "60", timeout=500)
    assert played.returncode == 0, played.stdout
    assert "went on" in played.stdout
