"""Protocols of model providers. Each module here defines a `PROVIDER`. To add a provider, add a module."""

import importlib

from arena.errors import UsageError
from arena.models.provider import Provider
from arena.settings import provider_names


def find_provider(name: str) -> Provider:
    """Imports the provider of that name.

    Raises:
        UsageError: there is no such provider.
    """
    if name not in provider_names():
        raise UsageError(f"there is no provider {name!r}", f"choose from {', '.join(provider_names())}")
    provider: Provider = importlib.import_module(f"{__name__}.{name}").PROVIDER
    return provider
