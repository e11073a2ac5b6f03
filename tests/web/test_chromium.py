"""Pages in a real Chromium: a kernel is typed, saved and judged; the atlas; no request goes to another machine."""

import asyncio
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from chromium import started
from waiting import PATIENCE_S

from arena.board.scorecard import results
from arena.paths import Paths
from arena.records.header import read_events
from arena.settings import Settings, save_settings
from benchmarks.atlas import STORED, atlas
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Finished

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine"),
]


async def test_browser_kernel_is_judged_before_two_spectators(
    paths: Paths, tmp_path: Path, serve: Any, wait_until: Any
) -> None:
    save_settings(Settings(device="cpu", world=2, live_s=0, seconds=0.1), paths)
    kernel = paths.workspace / "01_allreduce" / "you" / "kernel.py"

    def verdicts() -> list[str]:
        found = [event for path in sorted(paths.runs.glob("*.jsonl")) for event in read_events(path)]
        return [event.result.verdict for event in found if isinstance(event, Finished)]

    assert PROGRAM is not None
    async with serve() as served, started(PROGRAM, tmp_path / "profile") as browser:
        owner, spectator = served.links
        tab = await browser.tab(owner, 1280, 800)
        await tab.draws()
        assert "token" not in await tab.value("location.href")
        while not kernel.exists():  # the list appears after a moment
            await tab.press("Enter")
            await asyncio.sleep(1)
        watching = [await browser.tab(spectator, *size) for size in ((1280, 800), (800, 600))]
        for each in watching:
            await each.draws()
        before = [await each.picture() for each in watching]
        await tab.call("Page.bringToFront")
        while "# typed" not in kernel.read_text():
            await tab.type("# typed in a browser")
            await tab.press("Enter")
            await tab.press("s", ctrl=True)
            await asyncio.sleep(1)
        await wait_until(verdicts)
        assert set(verdicts()) == {"PASS"}
        after = before
        async with asyncio.timeout(PATIENCE_S):
            while any(old == new for old, new in zip(before, after, strict=True)):
                await asyncio.sleep(1)
                after = [await each.picture() for each in watching]
        assert len(served.apps("owner")) == 1
        assert len(served.apps("spectator")) == 2
        asked = [urlsplit(address) for each in (tab, *watching) for address in each.requests]
        assert {address.netloc for address in asked} == {urlsplit(owner).netloc}
        assert not [each.errors for each in (tab, *watching) if each.errors]
        for each in watching:
            await each.close()
        await wait_until(lambda: not served.apps("spectator"))


async def test_another_port_receives_no_secret(paths: Paths, tmp_path: Path, serve: Any) -> None:
    save_settings(Settings(device="cpu"), paths)
    received: list[str] = []

    async def record(request: web.Request) -> web.Response:
        received.append(f"{request.raw_path} {dict(request.headers)}")
        return web.Response(text="<!doctype html>another server", content_type="text/html")

    other = web.Server(record)
    listening = await asyncio.get_running_loop().create_server(other, "127.0.0.1", 0)  # type: ignore[arg-type]
    port = listening.sockets[0].getsockname()[1]
    assert PROGRAM is not None
    async with listening, serve() as served, started(PROGRAM, tmp_path / "profile") as browser:
        for link in served.links:
            tab = await browser.tab(link)
            await tab.draws()
            await tab.call("Page.navigate", url=f"http://127.0.0.1:{port}/")
            await browser.tab(f"http://127.0.0.1:{port}/again")
            await tab.call("Page.navigate", url=link.partition("#")[0])  # the tab still has its token
            await tab.draws()
            stranger = await browser.tab(link.partition("#")[0])
            async with asyncio.timeout(PATIENCE_S):
                while "no access" not in await stranger.value("document.getElementById('why')?.textContent ?? ''"):
                    await asyncio.sleep(0.1)
        while len(received) < 4:
            await asyncio.sleep(0.1)
        for link in served.links:
            assert not [text for text in received if link.partition("token=")[2] in text]


async def test_atlas_fits_windows_and_sorts(tmp_path: Path) -> None:
    for name, page in atlas(load_catalogue(), [result for path in STORED for result in results(path)], {}).items():
        (tmp_path / name).write_text(page, encoding="utf-8")
    assert PROGRAM is not None
    async with started(PROGRAM, tmp_path / "profile") as browser:
        for width, scheme, background in ((400, "light", "246, 247, 249"), (1600, "dark", "15, 18, 22")):
            for name in ("index.html", "13_gemm_allreduce.html"):
                tab = await browser.tab("about:blank", width, 900)
                scheme_feature = {"name": "prefers-color-scheme", "value": scheme}
                await tab.call("Emulation.setEmulatedMedia", features=[scheme_feature])
                await tab.call("Page.navigate", url=(tmp_path / name).as_uri())
                async with asyncio.timeout(PATIENCE_S):
                    while await tab.value("document.readyState + location.protocol") != "completefile:":
                        await asyncio.sleep(0.1)
                page = "document.documentElement"
                assert await tab.value(f"{page}.scrollWidth <= {page}.clientWidth")
                assert background in await tab.value("getComputedStyle(document.body).backgroundColor")
                if name == "index.html":
                    await tab.value("document.querySelectorAll('.sorts th button')[2].click()")
                    cells = "[...document.querySelector('.sorts').tBodies[0].rows].map(row => row.cells[2].querySelector('data'))"
                    keys = await tab.value(f"{cells}.map(data => data ? Number(data.value) : -1)")
                    assert keys == sorted(keys, reverse=True)
                    assert keys[0] > 1
                assert not tab.errors
                assert {urlsplit(address).scheme for address in tab.requests} <= {"file"}
                await tab.close()
