"""A fault of the app itself: what is kept, what is printed, what the report has."""

import pytest
from textual.app import ComposeResult
from textual.widgets import OptionList

from arena.workspace.kernels import Workspace
from screens.dialogs.settings import SettingsScreen
from screens.kernel.screen import KernelScreen
from screens.terminal_app import TerminalApp
from screens.themes import VARIABLE_DEFAULTS

pytestmark = pytest.mark.slow


async def test_a_fault_keeps_text_and_prints_ten_lines(open_app, paths, monkeypatch, capfd, until) -> None:
    monkeypatch.setenv("FAULT_API_KEY", "sk-never-shown")

    def fail(screen: KernelScreen) -> None:
        local = "a local value"
        raise ValueError(f"sk-never-shown is out of bounds, {len(local)}")

    monkeypatch.setattr(KernelScreen, "action_wrap", fail)
    async with open_app(problem="13") as (app, pilot):
        await pilot.press(*"typed", "shift+f4")
        await until(pilot, lambda: app._exception is not None)
        app._exception = None  # else the pilot raises it
        app.faults.clear()
    assert app.return_code == 3
    path = app.services.workspace.kernel_path(app.services.catalogue.find("13"))
    assert Workspace(paths.workspace).draft(path).startswith("typed")

    box = capfd.readouterr().err
    assert len(box.strip().splitlines()) <= 10
    words = "".join(line.strip("│╭╮╰╯─ ").replace(" ", "") for line in box.splitlines())
    for said in (
        "ValueError after shift+F4",
        "is kept as a draft",
        str(paths.traceback),
        "Open again: pkb-arena 13_gemm",
    ):
        assert said.replace(" ", "") in words
    report = paths.traceback.read_text()
    assert "in fail" in report
    assert "ValueError: [FAULT_API_KEY] is out of bounds, 13" in report
    assert "sk-never-shown" not in box + report


async def test_screen_closed_while_it_opens_is_no_fault(open_app, until) -> None:
    async with open_app() as (app, pilot):
        for _ in range(5):
            await app.run_action("app.settings")
            assert isinstance(app.screen, SettingsScreen)
            app.screen.dismiss(None)
        await until(pilot, lambda: app.screen is app.picker)
        await pilot.pause(0.5)


class Lists(TerminalApp):
    CSS = "OptionList { height: 1; padding: 0; border: none; } Screen { max-height: 0; }"

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLE_DEFAULTS

    def compose(self) -> ComposeResult:
        yield OptionList(*map(str, range(20)))


@pytest.mark.parametrize("key", ["pageup", "pagedown"])
async def test_a_list_without_room_has_no_pages(key) -> None:
    async with Lists().run_test() as pilot:
        options = pilot.app.query_one(OptionList)
        options.focus()
        options.highlighted = 12
        options.styles.height = 0
        options._clear_caches()
        await pilot.pause()
        assert not options.scrollable_content_region
        await pilot.press(key)
        assert options.highlighted == 12
