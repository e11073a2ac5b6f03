"""The profile of a kernel in the app: lanes and sentences, failures, and the trace. test_profile.py profiles real ranks."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from waiting import PATIENCE_S

import screens.profile
from arena.errors import MachineError
from arena.profile.gpu_rules import Least, gpu_ranks
from arena.profile.ncu import ncu_kernels
from arena.profile.profile_process import NcuProfiled, Profiled, ProfileRequest
from arena.profile.rules import figures
from arena.profile.timeline import typical_call
from sandbox.machine.gpu_counters import GpuCounted
from sandbox.protocol.events import Finished
from sandbox.protocol.profile import Outside, RankProfile, Span, WorldProfile
from screens.kernel.screen import KernelScreen
from screens.profile import ProfileScreen, words


def made(world: int = 2) -> Profiled:
    """A simulated profile of two calls, in which the first rank waits for all others."""
    reports = []
    for rank in range(world):
        spans = []
        for call in range(2):
            begin = 1e5 + 2e4 * call
            own = 8_000.0 if rank else 1_000.0
            spans += [
                Span("call", "solution", begin, 10_000.0),
                Span("op", "aten::mm", begin, own),
                Span("wait", "all_reduce", begin + own, 10_000.0 - own),
            ]
        reports.append(RankProfile(rank, spans))
    return Profiled(reports, figures(reports))


@asynccontextmanager
async def profiled(open_app, until, go_to, size) -> AsyncIterator[tuple]:
    """The app at problem 1 with a saved kernel that passes, after the profile key was pressed."""
    async with open_app(problem="1", size=size) as (app, pilot):
        kernel = app.screen
        assert isinstance(kernel, KernelScreen)
        kernel.session.path.write_text("pass")
        await until(pilot, lambda: kernel.editor.text == "pass" and kernel.session.state.result is not None)
        await go_to(pilot, ProfileScreen, "f18")
        yield app, pilot


@pytest.mark.slow
async def test_failing_rank_is_told_in_its_own_words(open_app, until, go_to, screen_text, monkeypatch) -> None:
    """tests/unit/profile/test_profile.py tests what real ranks report when a call fails."""

    async def failed(request: ProfileRequest, tell) -> Profiled:
        words = "Traceback (most recent call last):\nValueError: no such [thing]\n"
        reports = [RankProfile(0, failed="closed by peer", failed_at=2.0), RankProfile(1, failed=words, failed_at=1.0)]
        return Profiled(reports, figures(reports))

    monkeypatch.setattr(screens.profile, "profile", failed)
    async with profiled(open_app, until, go_to, (60, 24)) as (app, pilot):
        await until(pilot, lambda: "✗ rank 1 failed" in screen_text(app))
        assert "ValueError: no such [thing]" in app.screen._end.plain
        await go_to(pilot, "there is no profile", "t")


@pytest.mark.slow
async def test_saved_text_is_profiled_and_leaving_ends_it(open_app, until, go_to, screen_text, monkeypatch) -> None:
    asked: list[ProfileRequest] = []
    ended = asyncio.Event()

    async def never(request: ProfileRequest, tell) -> Profiled:
        asked.append(request)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    monkeypatch.setattr(screens.profile, "profile", never)
    async with open_app(problem="1") as (app, pilot):
        saved = app.screen.session.path.read_text()
        await pilot.press("p")  # letters go into the editor
        await until(pilot, lambda: app.screen.editor.dirty)
        assert isinstance(app.screen, KernelScreen)
        await pilot.press("f18")
        await until(pilot, lambda: bool(asked))
        assert asked[0].source == saved
        assert asked[0].setting.world == 2
        await until(pilot, lambda: "as saved, without what was typed since" in screen_text(app))
        assert "▸ PROFILING" in screen_text(app)
        await go_to(pilot, "still being made", "t")
        await go_to(pilot, KernelScreen, "escape")
        await asyncio.wait_for(ended.wait(), PATIENCE_S)
        assert app.screen.editor.text == f"p{saved}"


@pytest.mark.slow
async def test_the_judges_figures_stand_above_the_kernels_word(
    open_app, until, go_to, screen_text, save_kernel, monkeypatch, paths
) -> None:
    async def at_once(request: ProfileRequest, tell) -> Profiled:
        return made()

    monkeypatch.setattr(screens.profile, "profile", at_once)
    async with open_app(problem="13") as (app, pilot):
        kernel = app.screen
        await save_kernel(pilot, "pass")
        await until(pilot, lambda: kernel.session.state.result is not None)
        await until(pilot, lambda: "shift+F6 profiles it" in screen_text(app))
        await go_to(pilot, "rank 0  waits for rank 1", "f18")
        shown = screen_text(app)
        assert "timed by the judge ✓ PASS  ▲ 1.50× [1.40, 1.60] end-to-end" in shown
        assert "a call takes 10,000 µs under the profiler" in shown
        profile = app.screen
        await pilot.press("t")
        await until(pilot, lambda: profile.trace is not None and profile.trace.name in screen_text(app))
        assert profile.trace.parent == paths.profiles
        assert json.loads(profile.trace.read_text())["traceEvents"]
        await go_to(pilot, kernel, "escape")
        await save_kernel(pilot, "wait")
        await until(pilot, lambda: kernel.session.state.phase == "check")
        await go_to(pilot, "rank 0  waits for rank 1", "f18")
        said = "No verdict on this revision in this setting yet. F5 at the kernel"
        await until(pilot, lambda: said in screen_text(app))


def test_each_line_beside_the_lanes_is_told(events, snapshot) -> None:
    ended = next(event for event in events("pass") if isinstance(event, Finished))
    ncu = NcuProfiled(ncu_kernels(REPORT.read_text()), "application", 93.2, {"kernel": "LaunchFailed"}, "x.ncu-rep")
    refused = MachineError("rank 1 sent no report within 90 s: [killed]", "`pkb-arena run` says more")
    lines = [words.judged_words(None, "F5"), words.judged_words(ended.result, "F5")]
    lines += [words.not_made("! NOT PROFILED\n\n", refused), words.not_made("!  ", MachineError("no [reason]", ""))]
    lines += [
        said for waits in (False, True) for said in (words.at_work(waits, 3.4, "F2"), words.ncu_at_work(waits, 61))
    ]
    lines += [words.trace_words(path, "t") for path in (None, Path("/a/b.json"))]
    lines += [words.ncu_offered("n"), words.ncu_found(ncu), words.rank_failed(RankProfile(1, failed="no [thing]\n"))]
    assert "\n".join(line.markup for line in lines) == snapshot


REPORT = Path(__file__).parents[1] / "unit" / "profile" / "ncu_report.csv"


def made_on_gpus(world: int = 2) -> Profiled:
    """A simulated profile on GPUs. The first rank waits for all others in a collective; NVLink was not counted."""
    reports = []
    for rank in range(world):
        own = 700.0 if rank else 100.0
        spans = [
            Span("call", "solution", 1e5, 1_000.0),
            Span("host", "pkb.call", 1e5, 300.0),
            Span("launch", "cudaLaunchKernel", 1e5 + 10.0, 30.0),
            Span("sync", "cudaStreamSynchronize", 1e5 + 100.0, 200.0),
            Span("kernel", "void gemm<float>(int)", 1e5 + 50.0, own, 7),
            Span("wait", "ncclDevKernel_AllReduce", 1e5 + 60.0 + own, 930.0 - own, 13),
        ]
        reports.append(RankProfile(rank, spans))
    missing = ["no bytes over NVLink: the driver counts none for this GPU"]
    gpus = [GpuCounted(sm=0.44, tensor=0.31, dram=0.8, dram_peak=4917e9, missing=missing)] * world
    found = WorldProfile(reports, Outside(250, 0.263, gpus))
    return Profiled(reports, [], gpu_ranks(found, Least(100e6, 10e6, 10e6)), found.outside)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 40), (100, 60), (160, 60)])
async def test_ncu_key_shows_its_rules_and_file(open_app, until, go_to, screen_text, monkeypatch, paths, size) -> None:
    """tests/gpu/test_profile.py tests what ncu itself finds."""
    ends = asyncio.Event()

    async def on_gpus(request: ProfileRequest, tell) -> Profiled | NcuProfiled:
        if not request.ncu_file:
            return made_on_gpus()
        tell(False)
        await ends.wait()
        return NcuProfiled(
            ncu_kernels(REPORT.read_text()), "application", 93.2, {"kernel": "LaunchFailed"}, request.ncu_file
        )

    monkeypatch.setattr(screens.profile, "profile", on_gpus)
    async with profiled(open_app, until, go_to, size) as (app, pilot):
        profile = app.screen
        shown = profile.query_one("#profile-page")
        await until(pilot, lambda: "n profiles the kernels of rank 0 with Nsight Compute" in shown.content.plain)
        await pilot.press("n")
        await until(pilot, lambda: "▸ NSIGHT COMPUTE" in shown.content.plain)
        await pilot.press("n")  # one at a time
        ends.set()
        await until(pilot, lambda: "cunn_SoftMaxForwardReg: 288.0 µs" in shown.content.plain)
        assert f"report  {paths.profiles}" in shown.content.plain
        profile.query_one("#profile-pane").scroll_end(animate=False)
        await until(pilot, lambda: ".ncu-rep" in screen_text(app).replace(" ", "").replace("\n", "").replace("│", ""))


@pytest.mark.parametrize("world", [1, 2, 8])
@pytest.mark.parametrize("width", [54, 94, 154])
def test_gpu_page_fits_with_two_lanes_a_rank(width: int, world: int) -> None:
    found = made_on_gpus(world)
    timeline = typical_call(found.reports)
    for height in (24, 60, 100):
        page = words.page(found, timeline, words.judged_words(None, "F5"), words.trace_words(None, "t"), width, height)
        lines = page.plain.splitlines()
        assert max(map(len, lines)) <= width
        assert sum(line.startswith("GPU  ·") for line in lines) == world
        assert sum(line.startswith("host ") for line in lines) == world
        assert any("1,052.0" in line for line in lines)
        assert "at HBM" in page.plain or world > 1
    text = " ".join(page.plain.split())
    assert "no bytes over NVLink: the driver counts none for this GPU" in text
    if world > 1:
        assert "waits for rank 1" in text
        assert "even out the work" in text


@pytest.mark.parametrize("world", [1, 2, 8])
@pytest.mark.parametrize("width", [54, 94, 154])
def test_page_fits_its_width_and_lanes_its_height(width: int, world: int) -> None:
    found = made(world)
    timeline = typical_call(found.reports)
    below = words.trace_words(None, "t")
    for height in (20, 40, 80):
        page = words.page(found, timeline, words.judged_words(None, "F5"), below, width, height)
        lines = page.plain.splitlines()
        assert max(map(len, lines)) <= width
        lanes = [line for line in lines if line.count("█") > width // 8]
        assert len(lanes) % world == 0
        assert len(lanes) == world or len(lines) <= height
    assert len(lanes) == 3 * world
    assert all(len(line) == width for line in lanes)
    if world > 1:
        assert lanes[0].index("█") == lanes[-1].index("█") == round(width * 0.8) - (width * 0.8 % 1 == 0.5)
