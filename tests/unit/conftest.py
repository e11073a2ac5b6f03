"""Makes `model_server` and `tool_agents` importable by the tests beside it, and starts one where a test asks for it."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODEL_SERVER = _load("model_server")
_load("tool_agents")  # needs the server


@pytest.fixture
def model_server() -> Iterator[Any]:
    """A provider on 127.0.0.1 that answers as its `replies` say."""
    server = MODEL_SERVER.ModelServer()
    yield server
    server.close()
