"""ctrl+f in texts other than the kernel: the log, an older revision, a model's text."""

import pytest
from textual.widgets import Input, OptionList

from screens.kernel.history import HistoryScreen
from screens.kernel.log_lines import LogLine
from screens.kernel.panes.log_pane import LogPane
from screens.widgets.source_bars import FindBar

pytestmark = pytest.mark.slow


async def test_find_in_the_log(open_app, until, screen_text) -> None:
    async with open_app(problem="13", size=(160, 50)) as (app, pilot):
        screen = app.screen
        log = screen.query_one(LogPane)
        log.write([LogLine(f"step {number} of the Warmup", number % 2, "text") for number in range(200)])
        screen.go_to("log")
        await until(pilot, lambda: log.has_focus)
        await pilot.press("ctrl+f")
        await until(pilot, lambda: isinstance(app.focused, Input))
        await pilot.press(*"step 17")
        await until(pilot, lambda: "1 of 11" in screen_text(app))  # 17, and 170 to 179
        assert log.cursor == 17
        await until(pilot, lambda: "step 17 of" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: log.cursor == 170 and "2 of 11" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: log.has_focus and not screen.query_one(FindBar).has_class("open"))
        assert log.cursor == 170


async def test_find_in_an_older_revision(open_app, type_kernel, until, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = app.screen
        type_kernel(screen, "pass\n# the needle lies here\n# and a needle there\n")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: 13 in screen.session.services.standings)
        await pilot.press("f6")
        await until(pilot, lambda: isinstance(app.screen, HistoryScreen) and bool(app.screen.entries))
        await pilot.press("ctrl+f")
        await until(pilot, lambda: isinstance(app.focused, Input))
        await pilot.press(*"needle")
        await until(pilot, lambda: "1 of 2" in screen_text(app))
        assert app.screen.query_one("#preview").selected_text == "needle"
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.focused, OptionList))
        assert isinstance(app.screen, HistoryScreen)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is screen)
