"""A model provider for the apps that these tests run in a terminal."""

from collections.abc import Iterator

import pytest
from model_server import ModelServer


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """A model provider on 127.0.0.1 that sends its `replies`."""
    server = ModelServer()
    yield server
    server.close()
