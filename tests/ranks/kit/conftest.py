"""Real ranks for tests of the kit: forked from a process that has not imported the kit."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _loaded(path: Path) -> ModuleType:
    """A module of the tests, which pytest imports one by one and knows by their paths."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    return module


_loaded(
    Path(__file__).with_name("exact_collectives.py")
)  # the launcher has this folder on its path, the tests have not
rank_worlds = _loaded(Path(__file__).parents[2] / "rank_worlds.py")


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A `Worlds` (tests/rank_worlds.py): worlds.run(function, world, ...)."""
    started = rank_worlds.Worlds(tmp_path_factory.mktemp("kernels"), 64 << 20)
    yield started
    started.close()
