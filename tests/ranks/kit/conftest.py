"""Real ranks for tests of the kit: forked from a process that has not imported the kit."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_worlds import Worlds

USUAL_WORLDS = {1, 3}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests at other world sizes as `further` if the same test runs with three ranks."""
    cases = [(item, getattr(item, "callspec", None)) for item in items if item.path.parent == Path(__file__).parent]
    worlds = [
        ((item.originalname, str({**spec.params, "world": 0})), spec.params["world"], item)
        for item, spec in cases
        if spec is not None and "world" in spec.params
    ]
    with_three = {case for case, world, _ in worlds if world == 3}
    for case, world, item in worlds:
        if world not in USUAL_WORLDS and case in with_three:
            item.add_marker(pytest.mark.further)


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """worlds.run(function, world, ...): runs a function of the test module on W new ranks."""
    started = Worlds(tmp_path_factory.mktemp("kernels"), 64 << 20)
    yield started
    started.close()
