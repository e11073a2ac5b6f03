"""Protocols of model providers. Each module here defines a `PROVIDER`. To add a provider, add a module."""

import importlib

from arena.models.provider import Provider


def find_provider(name: str) -> Provider:
    """Imports the provider of that name, one of `provider_names()`."""
    provider: Provider = importlib.import_module(f"{__name__}.{name}").PROVIDER
    return provider
