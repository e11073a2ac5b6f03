"""Addresses of providers, and HTTP clients for them with the certificate authorities and the proxy from the environment."""

import functools
import ipaddress
import os
import re
import ssl
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from arena.errors import PlayerFailed, UsageError, why
from arena.models.provider import Provider
from arena.settings import ModelSettings

CONNECT_S = 20.0


@dataclass(frozen=True)
class Proxy:
    """The proxy for a host. `str()` leaves out its password."""

    url: str
    variable: str
    """The environment variable that names it."""

    def __str__(self) -> str:
        return f"{re.sub('(?<=//).*@', '', self.url)} ({self.variable})"


@functools.cache
def authorities() -> ssl.SSLContext:
    """Reads the certificate authorities of the machine, as httpx does. Cached, because it takes 40 ms.

    Raises:
        PlayerFailed: a file that the environment names cannot be used.
    """
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        keys = os.environ.get("SSLKEYLOGFILE")
        if keys and (reason := _unwritable(keys)):
            raise PlayerFailed(
                f"SSLKEYLOGFILE names {keys}, which cannot be written: {reason}", "correct or unset it"
            ) from None
        reason = "it has no certificate" if isinstance(error, ssl.SSLError) else why(error)
        raise PlayerFailed(
            f"SSL_CERT_FILE names {os.environ.get('SSL_CERT_FILE')}, which cannot be used: {reason}",
            "correct or unset it",
        ) from None


def _unwritable(path: str) -> str:
    try:
        with open(path, "ab"):
            return ""
    except OSError as error:
        return why(error)


def proxy_for(url: str) -> Proxy | None:
    """Returns the proxy for an address from the environment. None if there is none, or for this machine's addresses."""
    parts = urlsplit(url)
    if is_local(url) or _excepted(parts.hostname or "", parts.port):
        return None
    for name in (f"{parts.scheme}_proxy", f"{parts.scheme}_proxy".upper(), "all_proxy", "ALL_PROXY"):
        if value := os.environ.get(name, "").strip():
            return Proxy(value if "://" in value else f"http://{value}", name)
    return None


def _excepted(host: str, port: int | None) -> bool:
    """Whether NO_PROXY names a host: by name, domain, address, network (10.0.0.0/8) or "*", with or without a port."""
    for entry in re.split(r"[\s,]+", os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""):
        with suppress(ValueError):
            if ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False):
                return True
        name, _, at = entry.rpartition(":") if re.search(r"[^:]:\d+$", entry) else (entry, "", "")
        name = name.removeprefix("*").removeprefix(".").lower()
        if (not at or port == int(at)) and (entry == "*" or (name and f".{host}".endswith(f".{name}"))):
            return True
    return False


def open_client(url: str, stall_s: float, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
    """Creates a client for requests to one address.

    stall_s: maximum seconds between two pieces of an answer.

    Raises:
        PlayerFailed: a proxy or a file that the environment names cannot be used.
    """
    proxy = proxy_for(url)
    encrypted = any(used.startswith("https:") for used in (url, proxy.url if proxy is not None else ""))
    try:
        return httpx.AsyncClient(
            verify=encrypted and authorities(),  # without TLS there is no certificate to verify
            timeout=httpx.Timeout(stall_s, connect=min(CONNECT_S, stall_s), pool=None),
            follow_redirects=False,  # a redirect would send the key to another host
            trust_env=False,
            proxy=proxy.url if proxy is not None else None,
            headers=headers,
        )
    except ImportError:
        raise PlayerFailed(
            f"the proxy {proxy} needs SOCKS, which is not installed", "pip install 'httpx[socks]', or unset it"
        ) from None
    except (ValueError, httpx.InvalidURL) as error:
        raise PlayerFailed(f"the proxy {proxy} cannot be used: {error}", "correct or unset it") from None


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
