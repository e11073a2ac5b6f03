"""Real ranks for tests of the kit: forked from a process that has not imported the kit."""

from collections.abc import Iterator

import pytest
from rank_worlds import Worlds


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """worlds.run(function, world, ...): runs a function of the test module on W new ranks."""
    started = Worlds(tmp_path_factory.mktemp("kernels"), 64 << 20)
    yield started
    started.close()
