"""A provider of models for the apps that run in a terminal here."""

from collections.abc import Iterator

import pytest
from model_server import ModelServer


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """A provider on 127.0.0.1 that answers as its `replies` say."""
    server = ModelServer()
    yield server
    server.close()
