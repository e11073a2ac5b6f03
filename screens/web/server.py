"""`pkb-arena serve`: textual-serve's server with access tokens, an app that survives a reload, and spectators.

A browser loads everything from this server: the page is our own, its script and fonts are textual-serve's.
"""

from __future__ import annotations

import asyncio
import html
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from string import Template

import textual_serve
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from textual_serve.server import Server, to_int

from arena.cli.display import ServePlan
from arena.cli.output import print_line
from arena.errors import MachineError
from arena.own_modules import module_command
from sandbox.protocol.verdict import ExitCode
from screens.web.access import HEADERS, PLACES, Access, Role
from screens.web.app_process import AppProcess
from screens.web.sessions import Browser, OwnerSession, Spectators, bounded, close_socket

HERE = Path(__file__).parent
STATIC = Path(textual_serve.__file__).parent / "static"
HEARTBEAT_S = 15.0
MESSAGE_BYTES = 1 << 20
"""Maximum size of a browser's message; a pasted kernel is smaller."""
LEAVE_S = 1.0
FONT_SIZES = (8, 32)


class ArenaServer(Server):
    """Two pages: `/` is the owner's, `/watch` the spectators'."""

    def __init__(self, plan: ServePlan) -> None:
        super().__init__("pkb-arena", plan.host, plan.port, title="pkb-arena", statics_path=STATIC)
        self.plan = plan
        roles: list[Role] = ["owner"] if plan.owner else []
        self.access = Access(plan.host, tuple(roles + (["spectator"] if plan.spectators else [])))
        problem = (plan.problem,) if plan.problem else ()
        self.owner = OwnerSession(lambda browser: self._process("screens.web.owner", browser, *problem), plan.keep_s)
        self.spectators = Spectators(lambda browser: self._process("screens.web.spectator", browser), plan.spectators)
        self._sockets: set[web.WebSocketResponse] = set()

    def _process(self, module: str, browser: Browser, *arguments: str) -> AppProcess:
        return AppProcess(
            module_command(module, *arguments),
            passed_on=self.plan.passed_on if module == "screens.web.owner" else (),
            write_bytes=browser.write_bytes,
            write_str=browser.write_str,
            close=browser.close,
            download_manager=self.download_manager,
        )

    async def _make_app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard()], client_max_size=MESSAGE_BYTES)
        app.add_routes(
            [
                *(
                    web.get(path, self.handle_websocket if path.endswith("ws") else self.handle_index)
                    for path in PLACES
                ),
                web.static("/static", self.statics_path),
                web.static("/page", HERE / "page"),
            ]
        )
        app.on_shutdown.append(self.on_shutdown)
        return app

    def _guard(self) -> Middleware:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if why := self.access.refusal(request):
                response: web.StreamResponse = web.Response(status=403, text=f"403: {why}\n")
            else:
                try:
                    response = await handler(request)
                except web.HTTPException as error:
                    response = web.Response(status=error.status, text=f"{error.status}: {error.reason}\n")
            if not response.prepared:
                response.headers.update(HEADERS)
            return response

        return guard

    async def handle_index(self, request: web.Request) -> web.Response:
        """Returns the page. If the address has a token, sets the cookie and loads the same page without a token."""
        role = PLACES[request.path]
        if "token" in request.query:
            # Not a redirection: after a link in another page, the browser would not send a strict cookie with it.
            target = f'<meta http-equiv="refresh" content="0;url={request.path}">'
            response = web.Response(text=f"<!doctype html>{target}pkb-arena", content_type="text/html")
            response.set_cookie(
                self.access.cookie(role), self.access.tokens[role], httponly=True, samesite="Strict", path="/"
            )
            return response
        size = min(max(to_int(request.query.get("fontsize", "16"), 16), FONT_SIZES[0]), FONT_SIZES[1])
        socket = "/ws" if role == "owner" else "/watch/ws"
        page = Template((HERE / "page" / "page.html").read_text(encoding="utf-8")).substitute(
            font_size=size,
            role=role,
            websocket=html.escape(f"ws://{request.host}{socket}"),
            title="pkb-arena" if role == "owner" else "pkb-arena · spectator",
        )
        return web.Response(text=page, content_type="text/html")

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Serves a tab: shows the owner's app, or a new app for a spectator."""
        if PLACES[request.path] == "owner":
            return await self._show(request, self.owner.show)
        with self.spectators.admitted() as free:
            if not free:
                raise web.HTTPServiceUnavailable(reason="too many spectators")
            return await self._show(request, self.spectators.show)

    async def _show(
        self, request: web.Request, show: Callable[[web.WebSocketResponse, int, int], Awaitable[None]]
    ) -> web.WebSocketResponse:
        width, height = bounded(
            to_int(request.query.get("width", "80"), 80), to_int(request.query.get("height", "24"), 24)
        )
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=MESSAGE_BYTES, compress=False)
        await socket.prepare(request)
        self._sockets.add(socket)
        try:
            await show(socket, width, height)
        finally:
            self._sockets.discard(socket)
            await close_socket(socket, b"")
        return socket

    async def on_shutdown(self, app: web.Application) -> None:
        """Ends every app, in order."""
        await asyncio.gather(self.owner.end(), self.spectators.end())
        await asyncio.gather(*(close_socket(socket, b"the server has ended") for socket in list(self._sockets)))

    async def live(self) -> int:
        """Serves until a signal comes. Returns the exit code.

        Raises:
            MachineError: the address or the port is not available.
        """
        over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def signalled(code: int) -> None:
            if not over.done():
                over.set_result(code)

        for number, code in ((signal.SIGINT, int(ExitCode.INTERRUPTED)), (signal.SIGTERM, 128 + signal.SIGTERM)):
            asyncio.get_running_loop().add_signal_handler(number, signalled, code)
        runner = web.AppRunner(await self._make_app(), access_log=None, shutdown_timeout=LEAVE_S)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self.plan.host, self.plan.port)
            try:
                await site.start()
            except OSError as error:
                raise MachineError(
                    f"cannot listen on {self.plan.host}:{self.plan.port}: {error.strerror}",
                    "name another one: --port 0 takes any free one",
                ) from None
            self._say_where(runner.addresses[0][1])
            return await over
        finally:
            await runner.cleanup()

    def _say_where(self, port: int) -> None:
        words = {"owner": "you        ", "spectator": "spectators "}
        for role in self.access.roles:
            print_line(f"{words[role]} {self.access.link(role, port)}")
        print_line(f"from another machine: ssh -L {port}:127.0.0.1:{port} HOST, then the same link there")
        print_line("ctrl+c ends it")


def serve(plan: ServePlan) -> int:
    """Serves until it is interrupted. Returns the exit code.

    Raises:
        MachineError: the address or the port is not available.
    """
    return asyncio.run(ArenaServer(plan).live())
