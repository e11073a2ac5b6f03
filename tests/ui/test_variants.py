"""Several kernels of one problem, and two of them in one run."""

import pytest
from msgspec.structs import replace
from textual.widgets import Input, OptionList

from screens.dialogs.questions import Question
from screens.kernel.history import HistoryScreen
from screens.kernel.variants import VariantsDialog

pytestmark = pytest.mark.slow


async def test_a_kernel_is_copied_opened_and_renamed(open_app, until, type_kernel) -> None:
    async with open_app(problem="13") as (app, pilot):
        first = app.screen
        path = first.session.path
        type_kernel(first, "mine")
        await pilot.press("shift+f1")
        await until(pilot, lambda: isinstance(app.screen, VariantsDialog) and app.focused is not None)
        app.screen.query_one(Input).focus()
        await pilot.press(*"ring", "enter")
        await until(pilot, lambda: app.screen is not first and getattr(app.screen, "session", None))
        await until(pilot, lambda: app.screen.editor.text == "mine" and not app.screen.editor.dirty)
        assert app.screen.session.path == path.with_name("ring.py")

        await pilot.press("shift+f1")
        await until(pilot, lambda: isinstance(app.screen, VariantsDialog) and app.focused is not None)
        app.screen.query_one(Input).focus()
        await pilot.press(*"tree", "ctrl+r")
        await until(pilot, lambda: path.with_name("tree.py").exists())
        assert not path.with_name("ring.py").exists()
        await until(pilot, lambda: getattr(app.screen, "session", None) and app.screen.session.path.name == "tree.py")
        await until(pilot, lambda: app.screen.editor.text == "mine")

        await pilot.press("shift+f1")
        await until(pilot, lambda: isinstance(app.screen, VariantsDialog) and app.focused is not None)
        app.screen.query_one(OptionList).highlighted = 0
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Question))  # asks about the draft, which was typed there
        assert app.screen_stack[-2].session.path == path


async def test_the_history_names_the_other_kernels(open_app, until, type_kernel, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen, store = app.screen, app.services.store
        type_kernel(screen, "pass")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: len(store.history(13)) == 1 and not screen.session.busy)
        store.record(replace(store.history(13)[0], run_id="other", kernel_name="wrong.py"))
        await pilot.press("f6")
        await until(pilot, lambda: isinstance(app.screen, HistoryScreen) and "wrong.py" in screen_text(app))
        assert "kernel.py" not in app.screen.query_one("#runs", OptionList).get_option_at_index(1).prompt.plain


async def test_the_history_times_the_kernel_against_a_revision(open_app, until, type_kernel) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = app.screen
        store = app.services.store
        type_kernel(screen, "pass")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: len(store.history(13)) == 1 and not screen.session.busy)
        type_kernel(screen, "pass\n# two")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: len(store.history(13)) == 2 and not screen.session.busy)
        await pilot.press("f6")
        await until(pilot, lambda: isinstance(app.screen, HistoryScreen) and app.screen.entries)
        app.screen.query_one("#runs", OptionList).highlighted = 1
        await pilot.press("t")
        await until(pilot, lambda: " against " in screen.session.verdict_of(screen.editor.text))
        assert screen.session._judged.versus.source == "pass"
        assert screen.session._judged.source == "pass\n# two"
