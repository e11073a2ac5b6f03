"""Access to the web server: checks of Host and Origin, a token for each role, and a bound on connections without one.

The owner can run programs on this machine. A link has its token behind the #, which no browser sends. The page keeps it
in the session storage of its origin, port included, and sends it as the first message of its websocket.
"""

import asyncio
import hmac
import re
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, cast

import msgspec
from aiohttp import web

from arena.cli.display import LOOPBACK

Role = Literal["owner", "spectator"]
PLACES: dict[str, Role] = {"/": "owner", "/ws": "owner", "/watch": "spectator", "/watch/ws": "spectator"}
"""The role of each page and of its websocket. The files of the pages hold no secret."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The first header keeps a browser from requests to other machines, and other pages from framing this one."""
MOST_STRANGERS = 64
"""Maximum number of connections without access."""


@dataclass(frozen=True)
class Access:
    """The tokens of one server."""

    host: str
    """The address that it listens on."""
    roles: tuple[Role, ...]
    tokens: dict[Role, str] = field(
        default_factory=lambda: {"owner": secrets.token_urlsafe(32), "spectator": secrets.token_urlsafe(32)}
    )

    def link(self, role: Role, port: int) -> str:
        """Returns the address that gives its reader a role."""
        wildcard = self.host in ("0.0.0.0", "::")
        host = socket.gethostname() if wildcard else self.host
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{port}{'/' if role == 'owner' else '/watch'}#token={self.tokens[role]}"

    def refusal(self, request: web.Request) -> str:
        """Returns why a request is refused; empty if it is not.

        A foreign Host means that somebody else's name points at this address (DNS rebinding). A foreign Origin means
        that another page makes the request.
        """
        if not all(value.isascii() for name, value in request.headers.items() if name.lower() != "cookie"):
            return "a header is not ASCII"
        if not self._knows(request.host, request):
            return "unknown Host: use the address that `pkb-arena serve` printed"
        origin = request.headers.get("Origin")
        if origin is None and request.path.endswith("/ws"):
            return "a websocket needs an Origin"
        if origin is not None and origin != f"http://{request.host}":
            return "foreign Origin"
        role = PLACES.get(request.path)
        if role is not None and role not in self.roles:
            return "this server has no owner's app: it is for spectators" if role == "owner" else "no spectators here"
        return ""

    def gives(self, role: Role, message: object) -> bool:
        """Whether a websocket's first message, ["token", TOKEN], gives a role."""
        try:
            kind, token = msgspec.json.decode(cast("str | bytes", message), type=tuple[str, str])
        except (ValueError, TypeError, RecursionError):
            return False
        return kind == "token" and hmac.compare_digest(token.encode("utf-8", "replace"), self.tokens[role].encode())

    def _knows(self, host: str, request: web.Request) -> bool:
        """Whether `host` is one of this machine's names. Any port is accepted: it may be a tunnel's other end."""
        parts = re.fullmatch(r"(?:\[([0-9a-f:.%]*:[0-9a-f:.%]*)\]|([^][:]+))(?::\d+)?", host.lower())
        known = {*LOOPBACK}
        if self.host not in LOOPBACK:
            # A numeric address is safe, because no DNS server can point it elsewhere.
            at = request.transport.get_extra_info("sockname") if request.transport is not None else None
            known |= {self.host, socket.gethostname(), *((str(at[0]),) if at else ())}
        return parts is not None and (parts[1] or parts[2]) in {name.lower() for name in known}


class Door:
    """Counts connections without access. If there are too many, a new one ends the oldest, so the owner gets in."""

    def __init__(self) -> None:
        self._strangers: dict[asyncio.BaseTransport, None] = {}

    def admitting(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """Returns a factory of protocols that passes each new connection to a protocol of `make`."""
        return lambda: _Entrance(self, make())

    def enter(self, transport: asyncio.Transport) -> None:
        """Adds a connection. One that is closed already counts no more."""
        self._strangers = {each: None for each in self._strangers if not each.is_closing()}
        if len(self._strangers) >= MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            cast("asyncio.Transport", oldest).abort()
        self._strangers[transport] = None

    def let_in(self, transport: asyncio.BaseTransport | None) -> None:
        """Removes a connection, because its user has access."""
        if transport is not None:
            self._strangers.pop(transport, None)


class _Entrance(asyncio.Protocol):
    def __init__(self, door: Door, inner: asyncio.Protocol) -> None:
        self._door, self._inner = door, inner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connection = cast("asyncio.Transport", transport)
        self._door.enter(connection)
        connection.set_protocol(self._inner)
        self._inner.connection_made(connection)
