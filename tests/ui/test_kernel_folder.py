"""Kernels of several files, several kernels of one problem, and their revisions in the app."""

import re
import threading
from unittest.mock import patch

import pytest
from msgspec.structs import replace
from stored_runs import record
from textual.widgets import Input, OptionList

from arena.workspace.kernels import Workspace, read_kernel
from sandbox.protocol.events import Failure, Finished
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict
from screens.dialogs.questions import Question
from screens.kernel.history import HistoryScreen
from screens.kernel.panes.failure_view import FailureView
from screens.kernel.run_update import place_of
from screens.kernel.screen import KernelScreen
from screens.kernel.variants import NamesDialog

pytestmark = pytest.mark.slow


async def test_folder_is_judged_on_any_save_and_restored(open_app, until, type_kernel, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        store, first = app.services.store, app.screen
        type_kernel(first, "pass")
        await pilot.press("shift+f1")
        await until(pilot, lambda: isinstance(app.screen, NamesDialog) and app.focused is not None)
        await pilot.press(*"ring/", "enter")
        folder = first.session.path.with_name("ring")
        await until(pilot, lambda: getattr(app.screen, "session", None) and app.screen.session.path == folder)
        await until(pilot, lambda: app.screen.editor.text == "pass" and not app.screen.editor.dirty)
        screen = app.screen

        await until(pilot, lambda: screen.session._watcher is not None)
        (folder / "ops.cu").write_text("one")  # by another program
        await until(pilot, lambda: len(store.history(13)) == 1 and not screen.session.busy)
        one = read_kernel(folder)
        assert (screen.session.state.sha256, one.files) == (one.sha256, {"ops.cu": b"one"})
        await until(pilot, lambda: "kernel.py + 1 file" in screen_text(app))
        await pilot.press("f3")
        await until(pilot, lambda: all(word in screen_text(app) for word in ("▸ops.cu", "1  one")))

        type_kernel(screen, "pass\n# typed")
        (folder / "ops.cu").write_text("two")
        await until(pilot, lambda: len(store.history(13)) == 2 and not screen.session.busy)
        assert screen.editor.text == "pass\n# typed"  # unsaved, and untouched by the save of another file
        assert screen.session.state.sha256 == read_kernel(folder).sha256
        assert screen.session.verdict_of(screen.buffer.kernel)  # the verdict is of the files on disk
        await until(pilot, lambda: "1  two" in screen_text(app))  # the file in front is followed
        await pilot.press("ctrl+s")
        await until(pilot, lambda: len(store.history(13)) == 3 and not screen.session.busy)
        assert screen.session.state.sha256 == read_kernel(folder).sha256
        assert not screen.session.verdict_of(screen.buffer.kernel)

        await pilot.press("f6")
        await until(pilot, lambda: isinstance(app.screen, HistoryScreen) and app.screen.entries)
        first = [entry.sha256 for entry in app.screen.entries].index(one.sha256)  # a half-written save may have a row
        app.screen.query_one("#runs").move_cursor(row=first)
        await until(pilot, lambda: "==> ops.cu <==" in screen_text(app))
        await pilot.press("space")
        await pilot.resize_terminal(100, 40)  # too narrow for both side by side
        await until(pilot, lambda: "+++ editor/ops.cu" in screen_text(app) and "-one" in screen_text(app))
        await pilot.press("enter")  # into the editors of both files
        await until(pilot, lambda: app.screen is screen and screen.buffer.kernel == one.kernel)
        assert read_kernel(folder).files == {"ops.cu": b"two"}
        # Into a folder beside this one: it has other files; then one that was no text changes with kernel.py.
        for other in (Kernel("pass\n# 1", {"other.cu": b"\xff"}), Kernel("pass\n# 2", {"other.cu": b"one"})):
            app.screen.put(other, "")
            await until(pilot, lambda: getattr(app.screen, "buffer", None) and app.screen.buffer.kernel == other)  # noqa: B023
            assert read_kernel(app.screen.session.path).kernel == other


async def open_folder(app, pilot, until, files: dict[str, str]) -> KernelScreen:
    """Opens a folder with these files beside kernel.py."""
    folder = app.screen.session.path.with_name("ring")
    folder.mkdir(exist_ok=True)
    for name, text in {"kernel.py": "pass", **files}.items():
        (folder / name).write_text(text)
    app.open_problem(app.screen.problem, folder)
    await until(pilot, lambda: getattr(app.screen, "session", None) and app.screen.session.path == folder)
    await until(pilot, lambda: app.screen.editor.text == "pass" and app.screen.session._watcher is not None)
    return app.screen


async def test_files_of_folder_are_edited_in_tabs(open_app, until, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        store = app.services.store
        screen = await open_folder(app, pilot, until, {"ops.cu": "one"})
        with patch.object(screen._update_timer, "_callback", lambda: screen.set_timer(0.3, screen._on_timer_update)):
            await pilot.press("f3", "2")  # while layouts are late: the key is still for the file
        await until(pilot, lambda: all(words in screen_text(app) for words in ("▸ops.cu ● unsaved", "2one", "1:2")))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: len(store.history(13)) == 1 and not screen.session.busy)
        assert (screen.session.path / "ops.cu").read_text() == "2one"
        assert screen.session.state.sha256 == read_kernel(screen.session.path).sha256
        assert not screen.buffer.dirty
        with patch("screens.kernel.editing_screen.edit_outside", return_value="") as opened:
            await screen.run_action("edit_outside")
        assert opened.await_args.args[2] == screen.session.path / "ops.cu"
        await pilot.press("ctrl+o", "k", "ctrl+o", "1")
        await until(pilot, lambda: screen.front.name == "ops.cu" and screen.front.has_focus)
        await pilot.press("3", "escape")
        (screen.session.path / "ops.cu").write_text("another program")  # a save of it is shown, and run
        await until(pilot, lambda: screen.front.text == "another program" and len(store.history(13)) == 2)
        await pilot.press("ctrl+z")
        assert screen.front.text == "23one"
        (screen.session.path / "ops.cu").unlink()
        await until(pilot, lambda: not read_kernel(screen.session.path).files and screen.front.gone)
        await pilot.press("ctrl+s")  # the unsaved text is still there
        await until(pilot, (screen.session.path / "ops.cu").exists)


async def test_draft_of_another_file_is_offered(open_app, until, go_to, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = await open_folder(app, pilot, until, {"ops.cu": "one"})
        await go_to(pilot, app.picker, "f3", "2", "f10")
        await until(pilot, lambda: app.services.workspace.draft(screen.session.path / "ops.cu") == "2one")
        app.open_problem(screen.problem, screen.session.path)
        await until(pilot, lambda: re.search(r"A text of \d\d:\d\d with 1 line differs", screen_text(app)))
        await pilot.press("enter")
        await until(pilot, lambda: getattr(app.screen, "view", "") == "ops.cu" and app.screen.front.text == "2one")


async def test_files_are_added_renamed_and_deleted(open_app, until, go_to, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        await go_to(pilot, "This kernel is one file", "f19")
        screen = await open_folder(app, pilot, until, {})
        folder = screen.session.path

        async def files(*keys: str) -> None:
            await pilot.press("f19")
            await until(pilot, lambda: isinstance(app.screen, NamesDialog) and app.focused is not None)
            await pilot.press(*keys)

        await files(*"../up.cu", "enter")
        await until(pilot, lambda: "'../up.cu' cannot name a file" in screen_text(app))
        await go_to(pilot, "'kernel.py/x' cannot name a file", *["backspace"] * 8, *"kernel.py/x", "enter")
        await pilot.press(*["backspace"] * 11, *"ops.cu", "enter")
        await until(pilot, lambda: screen.view == "ops.cu" and app.screen is screen)
        await pilot.press("1")
        await files(*"csrc/o.cu", "ctrl+r")
        await until(pilot, lambda: screen.view == "csrc/o.cu" and screen.front.text == "1")
        assert read_kernel(folder).files == {"csrc/o.cu": b"1"}
        await pilot.press("2")
        await files("ctrl+x")
        await until(pilot, lambda: "Delete csrc/o.cu?" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: screen.view == "kernel" and "csrc/o.cu" not in screen_text(app))
        assert read_kernel(folder).files == {}
        workspace = app.services.workspace
        kept = [workspace.kernel(sha256) for sha256 in workspace.kept_of(folder)]
        assert any(kernel is not None and kernel.files == {"csrc/o.cu": b"21"} for kernel in kept)


async def test_failure_in_another_file_jumps_there(open_app, until, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = await open_folder(app, pilot, until, {"ops.py": "a = 1\nb = c\n"})
        text = """NameError: c\n\nTraceback (most recent call last):\n  File "kernel.py", line 1, in <module>
  File "ops.py", line 2, in <module>\n  File "/usr/lib/python3.12/ops.py", line 3"""
        failure = Failure(phase="load", message="NameError: c", advice="", rank=0, line=1, text=text)
        await screen.session.run(screen.buffer.kernel)
        await until(pilot, lambda: len(app.services.store.history(13)) == 1 and not screen.session.busy)
        result = replace(screen.session.state.result, verdict=Verdict.LOAD_ERROR, failure=failure)
        run_id = screen.session.state.run_id
        screen.apply(Finished(run_id=run_id, sha256="", result=result))
        await until(pilot, lambda: "enter jumps to line 2 of ops.py" in screen_text(app))
        screen.go_to("answer")
        await until(pilot, lambda: isinstance(app.focused, FailureView))
        await pilot.press("enter")
        await until(pilot, lambda: screen.view == "ops.py" and app.focused is screen.front)
        assert screen.front.cursor_location == (1, 0)
        assert screen.front.marks.words == {1: "NameError: c"}


def test_first_message_of_a_compiler_is_the_place() -> None:
    text = "ops.cu:7:3: error: one\nops.cu:9: error: two\nkit.h(3): error"
    failure = Failure(phase="compile", message="compile failed", advice="", text=text)
    assert place_of(failure, {"ops.cu"}) == ("ops.cu", 7)
    assert place_of(failure, ()) is None


async def test_history_of_one_file(open_app, until, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = await open_folder(app, pilot, until, {"ops.cu": "one"})
        kept = [{"ops.cu": b"one"}, {"ops.cu": b"two"}, {"ops.cu": b"two", "x.h": b""}]
        for created, files in enumerate(kept, 1):
            sha256 = app.services.workspace.keep_revision("pass", files)
            app.services.store.record(record(f"run {created}", problem_id=13, created=created, sha256=sha256))
        await pilot.press("f3", "f6")
        await until(pilot, lambda: isinstance(app.screen, HistoryScreen) and len(app.screen.entries) == 3)
        await pilot.press("f")
        await until(pilot, lambda: "2 changes of ops.cu" in screen_text(app) and "1  two" in screen_text(app))
        await pilot.press("space")
        await until(pilot, lambda: "-two" in screen_text(app) and "+one" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is screen and screen.front.text == "two")
        assert screen.buffer.kernel == Kernel("pass", {"ops.cu": b"two"})


async def test_forbidden_files_are_said_and_text_stays(open_app, until, type_kernel) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = await open_folder(app, pilot, until, {})
        folder = screen.session.path
        type_kernel(screen, "typed")
        (folder / "secret").symlink_to("/etc/passwd")
        await until(pilot, lambda: any("is a link out of" in str(note.message) for note in app._notifications))
        await pilot.press("ctrl+s")
        await pilot.pause(0.3)
        assert screen.editor.text == "typed"
        (folder / "secret").unlink()
        await pilot.press("ctrl+s")
        await until(pilot, lambda: (folder / "kernel.py").read_text() == "typed")


async def test_a_kernel_is_copied_opened_and_renamed(open_app, until, type_kernel, screen_text, monkeypatch) -> None:
    readers, variants = [], Workspace.variants
    monkeypatch.setattr(
        Workspace, "variants", lambda *its: readers.append(threading.current_thread()) or variants(*its)
    )
    async with open_app(problem="13") as (app, pilot):
        first = app.screen
        path = first.session.path
        type_kernel(first, "wrong")
        await pilot.press("shift+f1")
        await until(pilot, lambda: isinstance(app.screen, NamesDialog) and app.focused is not None)
        await pilot.press(*"ring", "enter")
        await until(pilot, lambda: app.screen is not first and getattr(app.screen, "session", None))
        await until(pilot, lambda: app.screen.editor.text == "wrong" and not app.screen.editor.dirty)
        assert app.screen.session.path == path.with_name("ring.py")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.screen.session.records and not app.screen.session.busy)

        type_kernel(app.screen, "wrong\n# typed")  # goes with the new name
        await pilot.press("shift+f1")
        await until(pilot, lambda: isinstance(app.screen, NamesDialog) and app.focused is not None)
        assert all(words in screen_text(app) for words in ("▸ ring    ✗ WRONG", "kernel  not run"))
        app.screen.query_one(Input).focus()
        await pilot.press(*"tree", "ctrl+r")
        await until(pilot, lambda: path.with_name("tree.py").exists())
        assert not path.with_name("ring.py").exists()
        await until(pilot, lambda: isinstance(app.screen, Question) and app.focused is not None)
        await pilot.press("enter")
        await until(pilot, lambda: getattr(app.screen, "session", None) and app.screen.session.path.name == "tree.py")
        await until(pilot, lambda: app.screen.editor.text == "wrong\n# typed")

        await pilot.press("shift+f1")
        await until(pilot, lambda: isinstance(app.screen, NamesDialog) and app.focused is not None)
        names, typed = app.screen.query_one(OptionList), app.screen.query_one(Input)
        await until(pilot, lambda: names.has_focus and names.highlighted == 1)
        await pilot.press("down")
        await until(pilot, lambda: typed.has_focus)
        await pilot.press("up")
        await until(pilot, lambda: names.has_focus)
        await pilot.press(*app.screen._names[0], "enter")
        await until(pilot, lambda: isinstance(app.screen, Question))  # asks about the draft, which was typed there
        assert threading.main_thread() not in readers
        assert app.screen_stack[-2].session.path == path


async def test_history_names_other_kernels_and_times_against_one(
    open_app, until, type_kernel, save_kernel, screen_text
) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = app.screen
        store = app.services.store
        await save_kernel(pilot, "pass")
        await until(pilot, lambda: len(store.history(13)) == 1 and not screen.session.busy)
        store.record(replace(store.history(13)[0], run_id="other", kernel_name="wrong.py"))
        await save_kernel(pilot, "pass\n# two")
        await until(pilot, lambda: len(store.history(13)) == 3 and not screen.session.busy)
        type_kernel(screen, "pass\n# three")
        await pilot.press("f6")
        await until(pilot, lambda: isinstance(app.screen, HistoryScreen) and "wrong.py" in screen_text(app))
        heads = {str(column.label).strip() for column in app.screen.query_one("#runs").ordered_columns}
        assert heads & {"kernel", "setting", "player", "outcome"} == {"kernel"}  # what all rows share is said above
        assert "you · tiny bfloat16 W=2 cpu" in screen_text(app)
        await pilot.press("m", "down", "space")  # compares with the marked run, not with the editor
        await until(pilot, lambda: f"+++ revision {screen.session.state.sha256[:8]}" in screen_text(app))
        await pilot.press("t")
        await until(pilot, lambda: " against " in screen.session.verdict_of(screen.buffer.kernel))
        assert screen.session._judged.versus.source == "pass"
        assert screen.session._judged.source == "pass\n# three"
