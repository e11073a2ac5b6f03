"""Makes `real_terminal` and the unit tests' `model_server` importable here."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_load(HERE / "real_terminal.py")
MODEL_SERVER = _load(HERE.parent / "unit" / "model_server.py")


@pytest.fixture
def model_server() -> Iterator[Any]:
    """A provider on 127.0.0.1 that answers as its `replies` say."""
    server = MODEL_SERVER.ModelServer()
    yield server
    server.close()
