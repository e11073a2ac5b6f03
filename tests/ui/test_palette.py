"""The command palette: what it offers on which screen, in which order, and the keys that work in it."""

import pytest
from textual.command import Command, CommandInput, CommandList, CommandPalette
from textual.events import Click

from screens.actions import ACTIONS, PLACES, key_of
from screens.dialogs.help import HelpScreen
from screens.dialogs.questions import Welcome
from screens.palette import Commands
from screens.sweep import SweepScreen

pytestmark = pytest.mark.slow


def offered(app) -> list[str]:
    """The commands in the menu, which come in groups on a busy machine."""
    commands = app.screen.query_one(CommandList)
    options = map(commands.get_option_at_index, range(commands.option_count))
    return [str(option.hit.text) for option in options if isinstance(option, Command)]


async def test_menus_and_screens_end_only_themselves(open_app, until) -> None:
    async with open_app() as (app, pilot):
        for key, said in (("ctrl+c", "ctrl+q quits"), ("ctrl+z", "Not suspended")):
            await pilot.press(key, key)
            await until(pilot, lambda: any(said in str(note.message) for note in app._notifications))  # noqa: B023
            shown = [note.message for note in app._notifications]
            assert len(shown) == len({*shown})
        await pilot.press("ctrl+p")
        before = app.screen
        before.dismiss()
        app.action_command_palette()
        await pilot.pause()
        assert isinstance(app.screen, CommandPalette)
        assert app.screen is not before
        await app.screen.query("*").remove()  # a search may end after the menu closed
        for found in (True, False):
            app.screen._show_busy = app.screen._list_visible = found
            await pilot.pause()
        await pilot.press("escape", "f9")
        settings = app.screen
        await pilot.press("f1")
        settings.dismiss()
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape", "escape")
        settings.dismiss()
        app.pop_screen()
        assert app.screen_stack == [app.picker]
        for chosen in ("settings", "help", "board", "8 alltoall"):  # commands of a closed screen
            async for hit in Commands(settings).search(chosen):
                await hit.command()
            assert settings not in app.screen_stack


async def test_click_beyond_shrunken_menu_does_nothing(open_app, go_to) -> None:
    async with open_app() as (app, pilot):
        await go_to(pilot, CommandPalette, "ctrl+p")
        palette = app.screen
        palette.post_message(Click(palette, 200, 60, 0, 0, 1, False, False, False))
        await pilot.pause()
        assert app.screen is palette


async def test_palette_over_welcome_works_as_in_problem_list(open_app, services, until, go_to, screen_text) -> None:
    services.first_start = True
    async with open_app() as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, Welcome) and "esc       goes" in screen_text(app))
        await pilot.press("ctrl+p", *"sweep")
        await until(pilot, lambda: f"{'sweeps':<16}c" in screen_text(app))
        await go_to(pilot, SweepScreen, "enter")
        assert [type(screen).__name__ for screen in app.screen_stack] == ["PickerScreen", "SweepScreen"]
        assert not services.first_start  # the welcome counts as read


async def test_palette_over_dialog_that_asks_leaves_it_alone(open_app, until, go_to) -> None:
    async with open_app() as (app, pilot):
        await go_to(pilot, HelpScreen, "f9", "f1")
        await go_to(pilot, CommandPalette, "ctrl+p")
        left_out = ("jump", "zoom", "command_palette")
        titles = {a.title for a in ACTIONS if a.scope == "everywhere" and a.name not in left_out}
        titles |= {f"theme: {name}" for name in app.theme_names}
        await until(pilot, lambda: {*offered(app)} == titles)


@pytest.mark.parametrize(("problem", "scope"), [("", "problems"), ("13", "kernel")])
async def test_palette_begins_with_local_actions_and_their_keys(
    open_app, until, go_to, screen_text, problem, scope
) -> None:
    async with open_app(problem=problem) as (app, pilot):
        await go_to(pilot, CommandPalette, "ctrl+p")
        own = [action for action in ACTIONS if action.scope == scope and action.name not in PLACES[1:]]
        places = [action for action in ACTIONS if action.name in PLACES and action not in own]
        everywhere = [a for a in ACTIONS if a.scope == "everywhere" and a.name != "command_palette"]
        titles = [action.title for action in [*own, *places, *everywhere]]
        shown = [*titles, *(f"theme: {name}" for name in app.theme_names)]
        await until(pilot, lambda: offered(app) == shown)
        commands = app.screen.query_one(CommandList)
        assert "F11        What" in str(commands.get_option_at_index(shown.index("this machine")).hit.match_display)
        first = next(action for action in ACTIONS if action.scope == scope)
        await until(pilot, lambda: f"{first.title:<16}{key_of(first.name, {})}" in screen_text(app))
        app.theme = "light"  # as the theme under the cursor is shown
        muted = app.get_theme("light").variables["muted"]
        await until(pilot, lambda: any(s.style and s.style.color.name == muted for s in commands.render_line(0)))
        assert not any(s.style.bold for s in commands.render_line(0) if s.style.color.name == muted)
        await pilot.press("escape")
        await pilot.resize_terminal(60, 24)
        await go_to(pilot, CommandPalette, "ctrl+p")
        without_group = f"\n  {first.title:<16}{key_of(first.name, {})}"
        await until(pilot, lambda: without_group in screen_text(app))


async def test_palette_has_best_match_first_and_nothing_odd(open_app, until) -> None:
    async with open_app(problem="13") as (app, pilot):
        await pilot.press("ctrl+p")
        for typed, first, far in (
            ("he", ["help"], "ask model"),
            ("theme", ["theme", "theme: ansi", "theme: dark", "theme: light", "theme: contrast"], "copy path"),
            ("run", ["run", "save & run", "run baseline"], "help"),
            ("dark", ["theme: dark"], "theme: light"),
            ("gar", ["13 gemm_allreduce"], "ask model"),
            ("13", ["13 gemm_allreduce"], "help"),
        ):
            app.screen.query_one(CommandInput).value = typed
            await until(pilot, lambda: offered(app)[: len(first)] == first and far not in offered(app))  # noqa: B023
        before = app.theme
        app.screen.query_one(CommandInput).value = "theme: light"
        await until(pilot, lambda: app.theme == "light")  # the one under the cursor is shown, not chosen
        await pilot.press("escape")
        await until(pilot, lambda: app.theme == before)
        await pilot.press("ctrl+p")
        await until(pilot, lambda: app.screen.query(CommandInput))
        app.screen.query_one(CommandInput).value = "vim"
        await until(pilot, lambda: offered(app)[:1] == ["settings"])
        await pilot.press("enter")
        await until(pilot, lambda: [each.display for each in app.screen.query(".setting")].count(True) == 1)
        await until(pilot, lambda: app.focused.id == "set-vim")


async def test_menu_at_kernel_has_its_templates_and_demo(open_app, until, go_to, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):  # the cursor of the list is at another one
        kernel = app.screen
        await until(pilot, lambda: "^p menu" in screen_text(app).splitlines()[-1])
        await pilot.press("ctrl+p", *"template")
        await until(pilot, lambda: f"{'new':<16}n" in screen_text(app))
        found = app.screen.query_one(CommandList).get_option_at_index(0)
        assert str(found.hit.match_display).startswith("new")  # no room for a group, which a search has not
        await go_to(pilot, "New kernel · gemm_allreduce", "enter")
        await pilot.press("escape", "ctrl+p", *"demo")
        await until(pilot, lambda: f"{'demo':<16}p" in screen_text(app))
        await go_to(pilot, "any key takes over", "enter")
        await go_to(pilot, kernel, "x")
