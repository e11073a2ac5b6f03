"""Access to the web server: Host, Origin, and a token that a link brings once and a cookie keeps.

The owner can run programs on this machine, so every request is checked, and unknown ones are refused.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from dataclasses import dataclass, field
from typing import Literal

from aiohttp import web

from arena.cli.display import LOOPBACK

Role = Literal["owner", "spectator"]
PLACES: dict[str, Role] = {"/": "owner", "/ws": "owner", "/watch": "spectator", "/watch/ws": "spectator"}
"""Which link opens what. An owner may look on, too; files of the page are for both."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""With the first of them a browser asks no other machine for anything, and nothing frames the page."""


@dataclass(frozen=True)
class Access:
    """The tokens of one server."""

    host: str
    """The address that it listens on."""
    roles: tuple[Role, ...]
    tokens: dict[Role, str] = field(
        default_factory=lambda: {"owner": secrets.token_urlsafe(32), "spectator": secrets.token_urlsafe(32)}
    )
    server: str = field(default_factory=lambda: secrets.token_hex(4))
    """In the cookies' names: a browser keeps one set for all ports of a machine."""

    def link(self, role: Role, port: int) -> str:
        """The address that lets its reader in."""
        wildcard = self.host in ("0.0.0.0", "::")
        host = socket.gethostname() if wildcard else self.host
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{port}{'/' if role == 'owner' else '/watch'}?token={self.tokens[role]}"

    def refusal(self, request: web.Request) -> str:
        """Why a request is refused; empty when it is not.

        A foreign Host means that a name of somebody else's was pointed at this address (DNS rebinding); a foreign Origin,
        that another page makes the request.
        """
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
        if "token" in request.query and role is not None and not request.path.endswith("/ws"):
            return "" if self._is_token(role, request.query["token"]) else "wrong token"
        if not any(self._has_cookie(request, each) for each in ((role, "owner") if role else self.roles)):
            return "no access: open the link that `pkb-arena serve` printed"
        return ""

    def cookie(self, role: Role) -> str:
        """The name of the cookie that keeps a role's token."""
        return f"pkb-arena-{self.server}-{role}"

    def _is_token(self, role: Role, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.tokens[role].encode())

    def _has_cookie(self, request: web.Request, role: Role) -> bool:
        return role in self.roles and self._is_token(role, request.cookies.get(self.cookie(role), ""))

    def _knows(self, host: str, request: web.Request) -> bool:
        """The machine's own names for itself; the port may be that of a tunnel's other end."""
        name = _without_port(host)
        known = {*LOOPBACK}
        if self.host not in LOOPBACK:
            # An address in numbers cannot be pointed elsewhere.
            at = request.transport.get_extra_info("sockname") if request.transport is not None else None
            known |= {self.host, socket.gethostname(), *((str(at[0]),) if at else ())}
        return name in known


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
