"""Keys that lead to every pane of the kernel screen, and the keys that footer, help and palette show there."""

import math

import pytest

from screens.app_protocol import DuelPlan
from screens.duel.live import GUEST, YOU, LiveDuelScreen
from screens.kernel.history import HistoryScreen
from screens.kernel.panes.log_pane import LogPane
from screens.kernel.panes.result_pane import PANES
from screens.kernel.screen import KernelScreen
from screens.kernel.setting_dialog import SettingDialog
from screens.kernel.source.source_pane import VIEW_LETTERS
from screens.widgets.text_lines import found_in

pytestmark = pytest.mark.slow

LETTERS = {**VIEW_LETTERS, **{pane.NAME: pane.LETTER for pane in PANES}}


def test_every_pane_has_a_letter_of_its_own() -> None:
    assert len(set(LETTERS.values())) == len(LETTERS)


async def test_letters_tab_and_zoom_reach_panes(open_app, until, go_to, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        await until(pilot, lambda: "╭─ Speedup" in screen_text(app))  # the letters are drawn over it
        await go_to(pilot, "l log", "ctrl+o")
        lines = screen_text(app).splitlines()
        assert " k ▸kernel" in lines[3].replace(" k kernel", " k ▸kernel")
        assert " b baseline " in lines[3]
        assert " s Speedup " in lines[4]  # the letter leaves the title as it is
        await pilot.press("x")  # no letter of any pane
        await until(pilot, lambda: app.screen.focused is app.screen.editor)
        await pilot.press("ctrl+n")
        await until(pilot, lambda: app.screen.focused is not app.screen.editor)
        order = []
        for _ in range(4):
            order.append(app.screen.focused.id)
            await pilot.press("tab")
        assert order == ["answer", "correctness", "timing", "log"]
        screen = app.screen
        log = screen.query_one(LogPane)
        log.focus()
        await until(pilot, lambda: log.has_focus)
        await pilot.press("ctrl+t")
        await until(pilot, lambda: log.region.width == 160 and log.region.height > 35)
        assert not screen.query_one("#source-pane").region.area
        await pilot.press("ctrl+n")  # from the last pane to the editor, which now fills the screen
        await until(pilot, lambda: screen.query_one("#source-pane").region.width == 160)
        await until(pilot, lambda: screen.focused is screen.editor)
        await pilot.press("escape")
        await until(pilot, lambda: screen.query_one("#source-pane").region.width == 80)
        assert screen.query_one("#correctness").region.area


async def test_keys_below_are_those_of_what_has_focus(open_app, until, screen_text) -> None:
    def keys() -> str:
        return screen_text(app).splitlines()[-1]

    async with open_app(problem="13") as (app, pilot):
        await until(pilot, lambda: "F3 view" in keys())
        app.screen.query_one(LogPane).focus()
        await until(pilot, lambda: "enter to the line  0-7 one rank  a all ranks" in keys())
        assert keys().startswith("^s save & run  ^o panes  F10 back  ^t zoom  enter to the line")
        assert "y copy" in keys()
        await pilot.press("escape", "f3")
        await until(pilot, lambda: app.screen.view == "baseline" and "F2 editor  F3 view  F4 size" in keys())
        assert keys().index("F6 history") > keys().index("F3 view")


async def help_of(app, pilot, until) -> list[str]:
    """The sections of the help over the present screen."""
    below = app.screen
    await pilot.press("f1")
    await until(pilot, lambda: hasattr(app.screen, "_sections"))
    sections = app.screen._sections
    await pilot.press("escape")
    await until(pilot, lambda: app.screen is below and app._vanished_at < math.inf)
    return sections


async def test_help_begins_with_what_has_the_focus(open_app, until, go_to) -> None:
    async with open_app(problem="13") as (app, pilot):
        own, screen, others = (await help_of(app, pilot, until))[:3]
        assert "Editor" in own
        assert "| ctrl+/ | comment |" in own
        assert "Keys at a kernel" in screen
        assert all(promised in others for promised in ("| undo |", "| ctrl+home |"))
        assert not any(seldom in others for seldom in ("super+", "ctrl+shift+k", "ctrl+backspace"))
        app.screen.query_one(LogPane).focus()
        await pilot.pause()
        text = "\n".join(await help_of(app, pilot, until))
        assert "Keys of the pane with the focus: Log" in text
        assert text.index("| 0-7 | one rank |") < text.index("## Keys at a kernel")
        await go_to(pilot, HistoryScreen, "f6")
        text = "\n".join(await help_of(app, pilot, until))
        assert text.index("Keys of this dialog: History") < text.index("compare with the editor")
        assert text.index("compare with the editor") < text.index("Keys at a kernel")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, KernelScreen) and app._vanished_at < math.inf)
        await go_to(pilot, SettingDialog, "f4")
        first = (await help_of(app, pilot, until))[0]
        assert all(words in first for words in ("| F5 or ctrl+s |", "| enter | go ahead", "| esc | back |"))
        assert "ctrl+q" not in first  # left out: it works everywhere


async def test_help_says_a_key_of_the_screen_once(open_app, until) -> None:
    async with open_app() as (app, pilot):
        first = (await help_of(app, pilot, until))[0]
        assert first.startswith("## Keys of the pane with the focus: Problems")
        assert "| enter |" not in first
        await pilot.press("slash")
        await until(pilot, lambda: type(app.focused).__name__ == "FilterInput")
        assert (await help_of(app, pilot, until))[0].startswith("## Keys of the pane with the focus: Filter")


def test_search_of_help_finds_beginnings_of_words() -> None:
    page = "## Keys\n\n| key | does |\n|---|---|\n| shift+F7 | files |\n| F6 | changing history |"
    assert [each for each in ("hang", "hist", "+f7", "change") if found_in(page, [each])] == ["hist", "+f7"]


def keys(text: str) -> str:
    """The last line; empty before the first paint."""
    return "".join(text.splitlines()[-1:])


async def test_a_duel_shows_the_keys_of_its_stage(open_app, until, screen_text) -> None:
    async with open_app() as (app, pilot):
        problem = app.services.catalogue.find("13")
        for player in (YOU, GUEST):
            app.services.workspace.save(app.services.workspace.kernel_path(problem, player), "pass")
        app.play_duel(problem, DuelPlan(YOU, GUEST, 10.0))
        await until(pilot, lambda: isinstance(app.screen, LiveDuelScreen) and "submit" in keys(screen_text(app)))
        screen = app.screen
        await until(pilot, lambda: "give up" in keys(screen_text(app)))
        assert "rematch" not in keys(screen_text(app))
        screen.action_submit()
        await until(pilot, lambda: screen.state.left.last.judged and screen.state.right.last.judged)
        await pilot.press("shift+f7", "shift+f7")
        screen.match.agree("right")
        await until(pilot, lambda: screen.state.stage == "ended")
        await until(pilot, lambda: "rematch" in keys(screen_text(app)) and "share" in keys(screen_text(app)))
        for gone in ("submit", "pause", "final", "give up"):
            assert gone not in keys(screen_text(app))
