"""The certificate authorities that this process trusts for providers' hosts."""

import functools
import ssl

import httpx


@functools.cache
def authorities() -> ssl.SSLContext:
    """The certificate authorities of the machine, as httpx finds them. Reading them takes 40 ms: once a process."""
    return httpx.create_ssl_context()
