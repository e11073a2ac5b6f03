"""A kernel at other sizes: the key, the pane, and the run that the user starts meanwhile."""

import re
from dataclasses import replace

import pytest

from screens.kernel.panes.other_sizes_pane import OtherSizesPane

pytestmark = pytest.mark.slow
KEY = "shift+f8"


async def run(app, pilot, type_kernel, until, source: str = "pass") -> None:
    type_kernel(app.screen, source)
    await pilot.press("ctrl+s")
    await until(pilot, lambda: app.screen.session.state.result is not None)


async def test_faster_kernel_is_judged_at_other_sizes(open_app, type_kernel, until, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = app.screen
        assert "Other sizes" not in screen_text(app)
        await pilot.press(KEY)
        await until(pilot, lambda: any("No correct run yet" in str(note.message) for note in app._notifications))
        await run(app, pilot, type_kernel, until)
        own = screen.session.state.run_id
        await pilot.press(KEY)
        await until(pilot, lambda: "faster: all" in screen_text(app))
        text = screen_text(app)
        assert text.count("▲ 1.50× faster") == 2
        assert text.count("✓ correct") == 1
        assert screen.session.state.run_id == own  # the verdict that is shown stays the kernel's own
        assert "✓ PASS  ▲ faster" in text
        panes = screen.query_one("#result-pane")
        assert sum(pane.outer_size.height for pane in panes.panes) <= panes.size.height
        await run(app, pilot, type_kernel, until, "pass\n# again")
        await until(pilot, lambda: "Other sizes" not in screen_text(app))


async def test_a_run_of_the_user_ends_it(open_app, type_kernel, until) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = app.screen
        await run(app, pilot, type_kernel, until)
        screen.session._judged = replace(screen.session._judged, source="wait")
        await pilot.press(KEY)
        await until(pilot, lambda: screen.session.others.running and screen.session.others.update.phase == "check")
        await until(pilot, lambda: screen.query_one(OtherSizesPane).rows == 3)
        await pilot.press("f5")
        await until(pilot, lambda: not screen.session.others.running and screen.session.state.result is not None)
        assert screen.session.state.verdict == "PASS"
        await until(pilot, lambda: screen.query_one(OtherSizesPane).empty)


@pytest.mark.further
async def test_settings_and_log_are_visible_at_100_columns(open_app, type_kernel, until, screen_text) -> None:
    async with open_app(problem="13", size=(100, 30)) as (app, pilot):
        await run(app, pilot, type_kernel, until)
        await pilot.press(KEY)
        await until(pilot, lambda: "faster: all" in screen_text(app))
        assert len(re.findall(r"(?:faster|correct) +W=\d \w+ M=\d+ N=\d+ K=\d+ ", screen_text(app))) == 3
        log = app.screen.query_one("#log")
        await until(pilot, lambda: log.region.height >= 3 and log.region.bottom <= 28)
