"""Random keys, pastes and sizes in the real app."""

import pytest

from benchmarks.monkey import OPENINGS

pytestmark = [pytest.mark.long, pytest.mark.timeout(1000)]


@pytest.mark.parametrize("screen", OPENINGS)
def test_ten_minutes_of_random_keys(run_benchmark, screen: str) -> None:
    played = run_benchmark("monkey", "--screen", screen, "--minutes", "10", "--shorten", "60", timeout=900)
    assert played.returncode == 0, played.stdout
    assert "went on" in played.stdout
