"""`pkb-arena serve`: a web server with access tokens, an app that survives a reload, and spectators.

A browser loads everything from this server: the page is our own, its script and fonts are textual-serve's.
"""

import asyncio
import html
import logging
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from string import Template
from typing import TextIO

import textual_serve
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from textual_serve.download_manager import DownloadManager
from textual_serve.server import to_int

from arena.cli.display import ServePlan
from arena.cli.output import print_line
from arena.errors import MachineError
from arena.paths import module_command
from arena.records.run_record import fields_of
from arena.words.untrusted_text import printable
from sandbox.protocol.verdict import ExitCode
from screens.web.access import HEADERS, PLACES, Access, Door, Role
from screens.web.app_process import AppProcess
from screens.web.sessions import SPECTATOR_BYTES, Browser, OwnerSession, Spectators, bounded, close_socket

HERE = Path(__file__).parent
STATIC = Path(textual_serve.__file__).parent / "static"
HEARTBEAT_S = 15.0
MESSAGE_BYTES = 1 << 20
"""Maximum size of a browser's message; a pasted kernel is smaller."""
HEAD_S = 10.0
"""Seconds for the head of a request, for a websocket's token, and between two requests of a connection."""
LOG_RECORDS, LOG_CHARACTERS = 20, 2000
"""Most records a minute in the log, and most characters of one."""
LEAVE_S = 1.0


class ArenaServer:
    """Two pages: `/` is the owner's, `/watch` the spectators'. Serving raises MachineError if its address is not available."""

    def __init__(self, plan: ServePlan) -> None:
        self.plan = plan
        self._downloads = DownloadManager()
        roles: list[Role] = ["owner"] if plan.owner else []
        self.access = Access(plan.host, tuple(roles + (["spectator"] if plan.spectators else [])))
        problem = (plan.problem,) if plan.problem else ()
        self.owner = OwnerSession(lambda browser: self._process("owner", browser, *problem), plan.keep_s)
        self.spectators = Spectators(lambda browser: self._process("spectator", browser), plan.spectators)
        self._sockets: set[web.WebSocketResponse] = set()
        self._door = Door()

    def _process(self, role: Role, browser: Browser, *arguments: str) -> AppProcess:
        return AppProcess(
            module_command(f"screens.web.{role}", *arguments),
            passed_on=self.plan.passed_on if role == "owner" else (),
            nice=0 if role == "owner" else 19,
            **fields_of(browser, "write_bytes write_str close"),
            download_manager=self._downloads,
        )

    def _make_app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard()], client_max_size=MESSAGE_BYTES)
        handlers = {path: self.handle_websocket if path.endswith("ws") else self.handle_index for path in PLACES}
        pages = [web.get(path, handler) for path, handler in handlers.items()]
        app.add_routes([*pages, web.static("/static", STATIC), web.static("/page", HERE / "page")])
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
        """Returns the page of a role."""
        role = PLACES[request.path]
        socket = "/ws" if role == "owner" else "/watch/ws"
        page = Template((HERE / "page" / "page.html").read_text(encoding="utf-8")).substitute(
            role=role,
            websocket=html.escape(f"ws://{request.host}{socket}"),
            title="pkb-arena" if role == "owner" else "pkb-arena · spectator",
        )
        return web.Response(text=page, content_type="text/html")

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Serves a tab that has sent its token: shows the owner's app, or a new app for a spectator."""
        role, transport = PLACES[request.path], request.transport
        most = MESSAGE_BYTES if role == "owner" else SPECTATOR_BYTES
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=most, compress=False, autoping=False)
        await socket.prepare(request)
        self._sockets.add(socket)
        why = b""
        try:
            if not self.access.gives(role, await _first_message(socket)):
                why = b"no access: open the link that `pkb-arena serve` printed"
            elif role == "owner":
                self._door.let_in(transport)
                await self.owner.show(socket, *_size(request))
            else:
                with self.spectators.admitted() as free:
                    if free:
                        self._door.let_in(transport)
                        await self.spectators.show(socket, *_size(request))
                    else:
                        why = b"too many spectators"
        finally:
            self._sockets.discard(socket)
            await close_socket(socket, why)
        return socket

    async def on_shutdown(self, app: web.Application) -> None:
        """Ends every app, in order."""
        await asyncio.gather(self.owner.end(), self.spectators.end())
        await asyncio.gather(*(close_socket(socket, b"the server has ended") for socket in list(self._sockets)))

    async def live(self) -> int:
        """Serves until a signal comes. Returns the exit code."""
        over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def signalled(code: int) -> None:
            if not over.done():
                over.set_result(code)

        for number, code in ((signal.SIGINT, int(ExitCode.INTERRUPTED)), (signal.SIGTERM, 128 + signal.SIGTERM)):
            asyncio.get_running_loop().add_signal_handler(number, signalled, code)
        async with self.listening() as port:
            self._say_where(port)
            return await over

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """Serves during the block; yields the port."""
        runner = web.AppRunner(
            self._make_app(), access_log=None, shutdown_timeout=LEAVE_S, keepalive_timeout=HEAD_S, lingering_time=0
        )
        await runner.setup()
        try:
            assert runner.server is not None
            make, plan = self._door.admitting(runner.server), self.plan
            try:
                server = await asyncio.get_running_loop().create_server(make, plan.host, plan.port)
            except OSError as error:
                raise MachineError(
                    f"cannot listen on {plan.host}:{plan.port}: {error.strerror}",
                    "name another one: --port 0 takes any free one",
                ) from None
            try:
                yield int(server.sockets[0].getsockname()[1])
            finally:
                server.close()
        finally:
            await runner.cleanup()

    def _say_where(self, port: int) -> None:
        words = {"owner": "you        ", "spectator": "spectators "}
        for role in self.access.roles:
            print_line(f"{words[role]} {self.access.link(role, port)}")
        print_line(f"from another machine: ssh -L {port}:127.0.0.1:{port} HOST, then the same link there")
        print_line("ctrl+c ends it")


async def _first_message(socket: web.WebSocketResponse) -> object:
    try:
        async with asyncio.timeout(HEAD_S):
            return (await socket.receive()).data
    except TimeoutError:
        return None


def _size(request: web.Request) -> tuple[int, int]:
    return bounded(to_int(request.query.get("width", "80"), 80), to_int(request.query.get("height", "24"), 24))


class ShortLog(logging.StreamHandler[TextIO]):
    """Writes errors of connections to stderr, a bounded number of characters a minute."""

    _minute, _records = 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        minute = int(time.monotonic() // 60)
        self._records = self._records + 1 if minute == self._minute else 1
        self._minute = minute
        return self._records <= LOG_RECORDS

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record)[:LOG_CHARACTERS])


def serve(plan: ServePlan) -> int:
    """Serves until it is interrupted. Returns the exit code."""
    logging.getLogger().addHandler(ShortLog())
    return asyncio.run(ArenaServer(plan).live())
