"""Real ranks for tests: forked processes with a gloo process group."""

from collections.abc import Callable
from typing import Any

import pytest
from waiting import PATIENCE_S

from sandbox.admission.ranks import RankFailed, in_gloo_ranks


@pytest.fixture
def in_ranks() -> Callable[..., list[Any]]:
    """in_ranks(world, work, timeout=PATIENCE_S): runs work(rank, world) in W forked gloo ranks, returns all values."""

    def run(world: int, work: Callable[[int, int], Any], timeout: float = PATIENCE_S) -> list[Any]:
        try:
            return in_gloo_ranks(world, work, timeout)
        except RankFailed as failed:
            pytest.fail(str(failed), pytrace=False)

    return run
