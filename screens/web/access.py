"""Access to the web server: checks of Host, Origin and a token. A link has the token once; then a cookie keeps it.

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
"""The role that each path needs. An owner may also open a spectator's; the files of the page are for both."""
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
    """Part of the cookies' names, because a browser keeps one set of cookies for all ports of a machine."""

    def link(self, role: Role, port: int) -> str:
        """Returns the address that gives its reader a role."""
        wildcard = self.host in ("0.0.0.0", "::")
        host = socket.gethostname() if wildcard else self.host
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{port}{'/' if role == 'owner' else '/watch'}?token={self.tokens[role]}"

    def refusal(self, request: web.Request) -> str:
        """Returns why a request is refused; empty if it is not.

        A foreign Host means that somebody else's name points at this address (DNS rebinding). A foreign Origin means
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
        """Whether `host` is one of this machine's names. Any port is accepted: it may be a tunnel's other end."""
        name = _without_port(host)
        known = {*LOOPBACK}
        if self.host not in LOOPBACK:
            # A numeric address is safe, because no DNS server can point it elsewhere.
            at = request.transport.get_extra_info("sockname") if request.transport is not None else None
            known |= {self.host, socket.gethostname(), *((str(at[0]),) if at else ())}
        return name in known


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
