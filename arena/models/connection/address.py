"""The address of a model's provider."""

from urllib.parse import urlsplit

from arena.errors import UsageError
from arena.models.connection.provider import Provider
from arena.settings import ModelSettings


def base_url(provider: Provider, model: ModelSettings) -> str:
    """Returns the base URL for requests to a model.

    Raises:
        UsageError: it is not an http(s) address, or has a password or a query, which messages would show.
    """
    url = (model.base_url or provider.base_url).rstrip("/")
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        shown = url.rpartition("@")[2].partition("?")[0]  # without parts that may be a password or a key
        raise UsageError(f"base_url {shown!r} is no address", "write it as https://host/v1")
    if parts.username or parts.password or parts.query:
        raise UsageError("base_url has a password or a query in it", "put the key where key_env says")
    return url


def is_local(url: str) -> bool:
    """Whether the server is on this machine. Such a server rarely needs a key."""
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")
