"""Settings, doctor, help, palette, welcome, themes, keys."""

import errno
import subprocess
import sys
import time
from unittest.mock import AsyncMock

import pytest
from textual.color import Color
from textual.command import CommandList, CommandPalette
from textual.css.query import NoMatches

from arena.errors import ArenaError
from arena.machine.finding import MachineFinding
from arena.settings import Settings, load_settings
from arena.workspace.kernels import Workspace
from screens.actions import ACTIONS
from screens.app import ArenaApp
from screens.base import KEYS_BESIDE_FROM
from screens.dialogs import Reader, doctor
from screens.dialogs.help import HelpScreen
from screens.dialogs.questions import Welcome
from screens.dialogs.settings import SettingsScreen
from screens.duel.live import LiveDuelScreen
from screens.duel.replay import ReplayDuelScreen
from screens.kernel.screen import KernelScreen
from screens.model import ModelScreen
from screens.picker import PickerScreen
from screens.profile import ProfileScreen
from screens.sweep import SweepScreen
from screens.terminal_app import HELD_S
from screens.themes import FOLDER, load_theme, load_themes, sixteen_colours
from screens.widgets.key_line import entitle

pytestmark = pytest.mark.slow


async def test_settings_are_generated_checked_and_saved(open_app, paths, until, go_to, screen_text) -> None:
    async with open_app() as (app, pilot):
        await go_to(pilot, "Colours of the app.", "f9")
        app.screen.query_one("#set-world").value = "many"
        await until(pilot, lambda: "✗ world is 'many'; it must be a whole number" in screen_text(app))
        await pilot.press("ctrl+s")
        assert app.screen.query("#set-world")  # not saved
        app.screen.query_one("#set-world").focus()
        await pilot.press("enter")  # goes to the next field
        await until(pilot, lambda: app.screen.focused not in (app.screen.query_one("#set-world"), None))
        app.screen.query_one("#set-world").value = "4"
        app.screen.query_one("#set-theme").value = "light"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: load_settings(paths).world == 4)
        await until(pilot, lambda: app.theme == "light")


async def test_remapped_key_works_and_help_shows_it(open_app, services, until, go_to) -> None:
    services.settings = Settings(device="cpu", keymap={"next_view": "f7"})
    async with open_app(problem="13") as (app, pilot):
        await pilot.press("f7")
        await until(pilot, lambda: app.screen.view == "baseline")
        await go_to(pilot, HelpScreen, "f1")
        assert any("| F7 | Next view" in section for section in app.screen._sections)


async def test_what_others_wrote_into_the_settings_file_stays(open_app, until, go_to, paths) -> None:
    model = '[models.mine]\nprovider = "openai_chat"\nmodel = "m"\nbase_url = "http://127.0.0.1:1"\n'
    async with open_app() as (app, pilot):
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(app.screen, SettingsScreen) and app.screen.is_mounted)
        paths.settings_file.write_text(f'device = "cpu"\nseconds = 2.0\n{model}')
        before = app.theme
        await pilot.press("shift+f9")
        await until(pilot, lambda: app.screen.query_one("#set-theme").value == load_settings(paths).theme != before)
        assert all(len(str(label.visual)) < label.size.width for label in app.screen.query(".label"))
        app.screen.query_one("#set-world").value = "4"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: load_settings(paths).world == 4)
        saved = load_settings(paths)
        assert (saved.theme, saved.seconds, [*saved.models]) == (app.theme, 2.0, ["mine"])
        paths.settings_file.write_text("devise = 1\n")  # a mistake: the file is not overwritten
        before = app.theme
        await go_to(pilot, "devise", "shift+f9")
        assert app.theme != before
        assert paths.settings_file.read_text() == "devise = 1\n"


@pytest.mark.parametrize("columns", [pytest.param(60, marks=pytest.mark.further), 120, 160])
async def test_help_starts_with_keys_of_screen_as_table(open_app, until, go_to, screen_text, columns) -> None:
    async with open_app(size=(columns, 40)) as (app, pilot):
        await pilot.press("f1")
        rows = ("first problem", "Start from a template")  # the first table has the place that it needs
        await until(pilot, lambda: all(row in screen_text(app) for row in rows))
        text = screen_text(app)
        assert "Keys of the pane" in text.split("─ Help ")[1].splitlines()[2]
        assert text.index("Keys in the list of problems") < text.index("Open the problem under the cursor")
        assert "|" not in text
        assert len(app.screen.query("*")) < 10, "a widget for every row takes seconds to mount"
        await pilot.press("slash", *"template kernel")
        await until(pilot, lambda: "Open the problem" not in screen_text(app) and "from a template" in screen_text(app))
        await go_to(pilot, "Open the problem", "escape")
        await pilot.press("f1")
        await until(pilot, lambda: app.screen is app.picker and bool(app.screen.query("#keys-beside")))
        app.open_problem(app.services.catalogue.find("13"))
        await until(pilot, lambda: isinstance(app.screen, KernelScreen))
        rows = ("ctrl+/  comment", "ctrl+s  save & run")  # of the editor, and of the screen
        await until(pilot, lambda: columns < KEYS_BESIDE_FROM or all(row in screen_text(app) for row in rows))
        kernel, result = app.screen, app.screen.query_one("#result-pane")
        assert result.display is (columns == 160), "the keys leave too few columns for two panes"
        await until(pilot, lambda: time.monotonic() - app._vanished_at > HELD_S)  # until then f1 is held
        await pilot.press("f1", "f1")
        await until(pilot, lambda: app.screen is kernel and not kernel.query("#keys-beside"))
        await until(pilot, lambda: result.display is (columns > 60))
        await pilot.press("f10")
        await until(pilot, lambda: app.screen is app.picker and not app.screen.query("#keys-beside"))
        app.keys_beside = app._exit = True  # the app is left right after the key
        app.show_keys_beside(app.picker)


async def test_the_terms_on_the_screen_are_explained(open_app, go_to) -> None:
    async with open_app(problem="13") as (app, pilot):
        kernel = app.screen
        for key in ("f1", "shift+f11"):
            await go_to(pilot, Reader, key)
            terms = next(section for section in app.screen._sections if "Terms on this screen" in section)
            assert "**W**: world size" in terms
            assert "library calls" not in terms
            await go_to(pilot, kernel, "escape")


async def test_dialogs_leave_help_quit_and_palette_in_force(open_app, services, until, go_to, monkeypatch) -> None:
    services.first_start = True
    async with open_app() as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, Welcome))
        await go_to(pilot, HelpScreen, "f1")
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, Welcome) and bool(app.picker.query("#keys-beside")))
        await go_to(pilot, CommandPalette, "ctrl+p")
        await go_to(pilot, HelpScreen, "f1")
        await go_to(pilot, CommandPalette, "ctrl+p", "escape")
        monkeypatch.setitem(sys.modules, "screens.palette", None)  # its file was changed
        await go_to(pilot, "pkb-arena has changed: quit it and open it again", "ctrl+p")
        await pilot.press("ctrl+q")
        await until(pilot, lambda: app._exit)


def test_every_action_can_be_done() -> None:
    owners = {
        "kernel": KernelScreen,
        "problems": PickerScreen,
        "everywhere": ArenaApp,
        "duel": LiveDuelScreen,
        "replay": ReplayDuelScreen,
        "model": ModelScreen,
        "sweep": SweepScreen,
        "profile": ProfileScreen,
    }
    for action in ACTIONS:
        assert hasattr(owners[action.scope], f"action_{action.name}"), action.name
        assert len(action.help) < 60, "the menu cuts it at 100 columns"
    assert len({action.name for action in ACTIONS}) == len(ACTIONS)


@pytest.mark.parametrize("columns", [60, 160])
async def test_findings_hang_below_themselves_where_they_scroll(open_app, until, monkeypatch, columns) -> None:
    found = [MachineFinding(f"thing {number}", "ok", "word " * 40) for number in range(20)]
    monkeypatch.setattr(doctor, "_findings", lambda: found)
    async with open_app(size=(columns, 24)) as (app, pilot):
        await pilot.press("f12")
        await until(pilot, lambda: bool(app.screen.query("#sections")))
        page = app.screen.query_one("#sections")
        await until(pilot, lambda: page.size.height > 20)
        await pilot.pause()
        rows = [page.render_line(y).text for y in range(2, page.size.height)]
        assert all(row.startswith(("✓ thing", " " * 19)) for row in rows)


async def test_first_start_welcomes_and_runs_first_kernel(open_app, services, until, go_to, paths) -> None:
    services.first_start = True
    async with open_app() as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, Welcome))
        await go_to(pilot, KernelScreen, "enter")
        await until(pilot, lambda: app.screen.session.state.run_id != "")
        assert app.screen.problem.id == 1
        assert paths.settings_file.exists()


async def test_terminals_own_colours_show_cursor_and_dialogs(open_app, until, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        app.choose_theme("ansi")
        await pilot.pause()
        style = app.screen.editor.get_component_rich_style("text-area--cursor")
        assert (style.reverse, style.color) == (True, style.bgcolor)  # two colours would be swapped: the text's own
        await pilot.press("ctrl+p")
        assert app.screen.query_one(CommandList).get_component_rich_style("option-list--option-highlighted").underline
        await pilot.press("escape", "f4")
        await until(pilot, lambda: bool(app.screen.query("#world")) and "kernel.py" in screen_text(app))  # behind it
        assert app.screen.query("Input").first().rich_style.underline
        assert app.screen.query("SelectCurrent").first().rich_style.underline
        texts = {value for key, value in app.current_theme.variables.items() if key.startswith(("muted", "code-"))}
        assert not texts & {"ansi_black", "ansi_white", "ansi_bright_white"}  # each is some terminal's background


def contrast(*colours: str) -> float:
    """The ratio of two colours' luminances, as WCAG 2 defines it."""
    parts = (
        [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in Color.parse(each).normalized]
        for each in colours
    )
    dark, light = sorted(0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in parts)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(
    ("name", "few", "least"),
    [("dark", False, 3), ("light", False, 3), ("contrast", False, 4.5), ("dark", True, 4), ("light", True, 4.5)],
)
def test_every_text_colour_is_readable(name, few, least) -> None:
    """few: in a terminal with 16 colours."""
    theme = next(theme for theme in load_themes()[0] if theme.name == name)
    keys = ("background", "foreground", "accent", "error", "success", "warning", "panel")
    drawn = {key: getattr(theme, key) for key in keys}
    drawn |= theme.variables | (sixteen_colours(dark=theme.dark) if few else {})
    assert drawn.get("outdated") == ("100%" if few else None)
    words = ["foreground", "accent", "error", "success", "warning", "muted"]
    below = {key: ["block-cursor-background", "background"] for key in words}
    below |= {key: ["background"] for key in drawn if key.startswith("code-")}
    for key, other in ((key, other) for key, others in below.items() for other in others):
        shown = drawn[key].replace("#aa5500", "#aaaa00")  # most palettes show brown as a yellow
        assert contrast(shown, drawn[other]) >= least, (key, other)
    assert contrast(drawn["panel"], drawn["background"]) > 1.2  # fields and buttons
    assert contrast(drawn["foreground"], drawn["panel"]) >= least


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('primary = "blurple"', 'primary = "blurple" is not a colour'),
        ('primary = "#112233"\nprimry = "#112233"', "primry"),
        ("primary = ", "Invalid value"),
        ('primary = "#112233"\n[variables]\nmuted = "x y"', "muted"),
    ],
)
def test_bad_theme_is_refused_with_file_and_key(tmp_path, text, said) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ArenaError) as error:
        load_theme(path)
    assert str(path) in str(error.value)
    assert said in str(error.value)


def test_bad_theme_of_users_does_not_stop_app(services, paths) -> None:
    (paths.config / "themes").mkdir()
    (paths.config / "themes" / "mine.toml").write_text('primary = "blurple"')
    (paths.config / "themes" / "good.toml").write_text((FOLDER / "dark.toml").read_text().replace('"dark"', '"good"'))
    app = ArenaApp(services)
    assert "good" in app.available_themes
    assert "mine" not in app.available_themes


def test_the_ui_process_imports_neither_torch_nor_cupy() -> None:
    code = (
        "import sys, pkgutil, importlib, screens\n"
        "for module in pkgutil.walk_packages(screens.__path__, 'screens.'):\n"
        "    importlib.import_module(module.name)\n"
        "print([name for name in ('torch', 'cupy', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_first_paint_waits_for_no_heavy_import() -> None:
    ours = "benchmarks.catalogue arena.cli problems.specification sandbox.machine.devices arena.runs.engine"
    late = f"{ours} screens.figures screens.palette click psutil sqlite3 watchfiles httpx pygments markdown_it".split()
    late += ["textual.widgets._data_table"]
    code = f"import sys, screens.main, screens.app\nprint([name for name in {late!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


LATER = {str(path) for path in ArenaApp.LATER_CSS}


async def test_first_paint_reads_only_styles_it_needs(services, monkeypatch) -> None:
    monkeypatch.setattr(ArenaApp, "_open", AsyncMock())  # what follows the first paint
    app = ArenaApp(services)
    async with app.run_test() as pilot:
        await pilot.pause()
        assert not LATER & {path for path, _ in app.stylesheet.source}
        drawn = {type(widget).__name__ for widget in app.screen.walk_children()}
        assert not drawn & {"ProblemTable", "OptionList", "FilterInput", "KeyLine"}
    await services.close()


async def test_a_title_is_never_markup(open_app, until, screen_text) -> None:
    async with open_app() as (app, pilot):
        entitle(app.picker.query_one("#problem-pane"), "[red]kernel[/red]", "[/nothing]")
        await until(pilot, lambda: all(said in screen_text(app) for said in ("[red]kernel[/red]", "[/nothing]")))


async def test_path_that_system_refuses_is_no_internal_error(open_app, until, monkeypatch) -> None:
    refused = AsyncMock(side_effect=PermissionError(errno.EACCES, "Permission denied", "/closed/kernel.py"))
    async with open_app(problem="13") as (app, pilot):
        app.screen.start(refused(), "run")
        await until(pilot, lambda: bool(len(app._notifications)))
        (said,) = (note.message for note in app._notifications)
        assert said.startswith("/closed/kernel.py: Permission denied")
        assert "check its permissions" in said
        monkeypatch.setattr(app, "_running", False)
        await app.screen._guard(AsyncMock(side_effect=NoMatches)())  # of an app that was left: no fault


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
