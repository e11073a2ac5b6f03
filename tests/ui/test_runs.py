"""Saving, running and cancelling on the kernel screen, against a scripted referee in a process of its own."""

import asyncio
import time
from functools import partial
from threading import Event

import pytest
from msgspec.structs import replace
from stored_runs import record
from waiting import PATIENCE_S

from arena.errors import FolderUnwritable
from arena.records.run_record import view
from arena.setting_choice import Choice
from arena.workspace.kernels import content_hash
from sandbox.protocol.events import Contender, Microseconds
from sandbox.protocol.kernel_files import Kernel
from screens.dialogs.questions import Question
from screens.kernel import kernel_session
from screens.kernel.history import HistoryScreen
from screens.kernel.screen import KernelScreen

pytestmark = pytest.mark.slow


def result_of(screen: KernelScreen) -> bool:
    return screen.session.state.result is not None


async def test_a_save_is_written_run_and_recorded(open_app, type_kernel, until, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen, engine = app.screen, app.services.engine
        type_kernel(screen, "pass")
        await until(pilot, lambda: screen.editor.dirty)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: result_of(screen))
        assert (screen.session.path.read_text(), screen.editor.dirty) == ("pass", False)
        assert screen.session.state.sha256 == content_hash("pass")
        await engine.recorded(screen.session.state.run_id)
        assert app.services.store.standings()[13].solved
        await engine.recorded("a run of another engine")  # returns at once
        await until(pilot, lambda: 13 in screen.session.services.standings)
        await pilot.press("f10")
        await until(pilot, lambda: all(said in screen_text(app) for said in ("▲ 1.50×", "solved 1 of 3 · faster 1")))


async def test_verdict_is_shown_while_measuring_goes_on(open_app, save_kernel, until, go_to, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = app.screen
        await go_to(pilot, "No PASS yet", "ctrl+l")
        await save_kernel(pilot, "measures")
        await until(pilot, lambda: screen.session.state.measuring_on)
        await until(pilot, lambda: "your best ▲ 1.50×" in screen_text(app))
        assert screen.session.state.told.told in screen.query_one("#timing").render().plain
        await go_to(pilot, "Already running", "ctrl+s")
        first, session = screen.session.state.run_id, screen.session
        await pilot.press("f6")
        await until(pilot, lambda: [entry.run_id for entry in app.screen.entries] == [first])  # once it is stored
        await go_to(pilot, screen, "escape")
        await pilot.press("ctrl+l")
        await until(pilot, lambda: screen.session.state.run_id != first and screen.session.state.measuring_on)
        assert screen.session.most_s == 10.0
        await go_to(pilot, "esc again: problems", "escape")
        assert screen.session.state.measuring_on
        await pilot.press("ctrl+b")
        await until(pilot, lambda: not session.busy)
        assert app.screen is screen
        longer = asyncio.create_task(session.measure_on())
        await asyncio.sleep(0)
        assert session.judging  # before the first event of the run: a second key asks for no other
        await longer


async def test_verdict_of_another_text_is_told_as_that(open_app, type_kernel, save_kernel, until, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        await save_kernel(pilot, "pass")
        await until(pilot, lambda: result_of(app.screen) and "PASS" in screen_text(app))
        assert "of revision" not in screen_text(app)
        await pilot.press("x")
        sha256 = app.screen.session.state.sha256
        await until(pilot, lambda: f"of revision {sha256[:8]} · F5 runs this text" in screen_text(app))
        assert app.screen.query_one("#headline").answer.colour == "muted"
        assert app.screen.query_one("#result-pane").has_class("outdated")
        await save_kernel(pilot, "wrong")
        await until(pilot, lambda: "What is wrong" in screen_text(app) and len(app.screen.session.records) == 2)
        for text, told in (
            ("pass", "finished: PASS"),
            ("wrong", "What is wrong"),
        ):  # all panes show the run of the text
            type_kernel(app.screen, text)
            await until(pilot, lambda: told in screen_text(app) and "F5 runs it again" in screen_text(app))  # noqa: B023
        await pilot.press("f17")
        await until(pilot, lambda: "of the baseline against itself" in screen_text(app))


async def test_text_after_versus_run_has_its_verdict(open_app, type_kernel, save_kernel, until, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = app.screen
        await save_kernel(pilot, "pass")
        await until(pilot, lambda: result_of(screen) and screen.session.records)
        type_kernel(screen, "wrong")
        await screen.session.run(screen.buffer.kernel, Contender("r.py", "pass"))
        sha256 = content_hash("wrong")[:8]
        await until(pilot, lambda: f"of {sha256} against r · F5" in screen_text(app) and "✗ WRONG" in screen_text(app))
        type_kernel(screen, "typed, and never run")
        await until(pilot, lambda: f"of revision {sha256} against r · F5" in screen_text(app))
        assert "what is wrong" in [stop.title for stop in screen.stops()]
        type_kernel(screen, "pass")
        await until(pilot, lambda: "F5 runs it again" in screen_text(app) and "finished: PASS" in screen_text(app))
        assert "✗ WRONG" not in screen_text(app)


async def test_outside_saves_are_watched_on_after_an_error(open_app, services, type_kernel, until, monkeypatch) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen, path = app.screen, app.screen.session.path
        screen.session.choice = Choice(dtype="none such")  # invalid: no run can start
        path.write_text("pass\n# 1")
        await until(pilot, lambda: any("none such" in note.message for note in app._notifications))
        assert screen.editor.text == "pass\n# 1"
        screen.session.choice = Choice()

        def full(*_: object) -> str:
            raise FolderUnwritable("the disk is full", "free some space")

        type_kernel(screen, "typed here")
        with monkeypatch.context() as patch:
            patch.setattr(services.workspace, "keep_revision", full)
            path.write_text("pass\n# 2")
            await until(pilot, lambda: any("the disk is full" in note.message for note in app._notifications))
        assert screen.editor.text == "typed here"
        path.write_text("pass\n# 3")
        await until(pilot, lambda: result_of(screen))
        assert screen.editor.text == "pass\n# 3"


async def test_unreadable_file_is_neither_run_nor_saved_over(open_app, services, until, go_to, screen_text) -> None:
    path = services.workspace.root / "13_gemm_allreduce" / "you" / "kernel.py"
    services.workspace.save(path, "pass")
    services.workspace.save_draft(path, "half a thought")
    path.write_bytes(b"pass\n# caf\xe9\n")
    async with open_app() as (app, pilot):
        app.open_problem(services.catalogue.find("13"))
        await until(pilot, lambda: any("is not UTF-8 text" in note.message for note in app._notifications))
        screen = app.screen
        await until(pilot, lambda: "read-only" in screen_text(app))
        for key in ("x", "ctrl+s", "ctrl+s", "f5"):
            await pilot.press(key)
        await pilot.pause(0.2)
        assert not screen.session.busy
        assert not screen.session.state.run_id
        assert path.read_bytes() == b"pass\n# caf\xe9\n"
        path.write_text("pass\n# coffee\n")
        await until(pilot, lambda: isinstance(app.screen, Question))
        await go_to(pilot, screen, "tab", "enter")
        await until(pilot, lambda: screen.editor.text == "pass\n# coffee\n")
        path.write_text("pass\n# tea\n")
        await until(pilot, lambda: result_of(screen))
        await pilot.press("x", "ctrl+s")
        await until(pilot, lambda: path.read_text() == "xpass\n# tea\n")


async def test_after_every_end_the_next_run_works(open_app, type_kernel, save_kernel, until, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = app.screen
        await save_kernel(pilot, "wait")
        await until(pilot, lambda: screen.session.state.phase == "check")
        await pilot.press("escape")
        await until(pilot, lambda: "esc again cancels" in screen_text(app))
        assert screen.session.busy
        await pilot.press("escape")
        await until(pilot, lambda: screen.session.state.cancelled_in is not None)
        assert not screen.session.busy
        type_kernel(screen, "pass")
        await pilot.press("f5")
        await until(pilot, lambda: result_of(screen))
        assert isinstance(app.screen, KernelScreen)
        await save_kernel(pilot, "refuse")
        await until(pilot, lambda: "! NOT RUN" in screen_text(app) and "sizes do not fit" in screen_text(app))
        await save_kernel(pilot, "die")
        await until(pilot, lambda: "! HARNESS ERROR" in screen_text(app))
        await save_kernel(pilot, "wait")  # by another referee; a newer save takes over
        await until(pilot, lambda: screen.session.state.running)
        await save_kernel(pilot, "pass\n# again")
        await until(pilot, lambda: screen.session.state.sha256 == content_hash("pass\n# again") and result_of(screen))


async def test_escape_while_file_is_written_cancels_run(
    open_app, services, type_kernel, save_kernel, until, monkeypatch
) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen, save, begun, go = app.screen, services.workspace.save, Event(), Event()

        def slow(*saved: str) -> str:
            begun.set()
            assert go.wait(PATIENCE_S)
            return save(*saved)

        monkeypatch.setattr(services.workspace, "save", slow)
        await save_kernel(pilot, "wait")
        await until(pilot, begun.is_set)
        await pilot.press("escape", "escape")
        go.set()
        await until(pilot, lambda: screen.session.state.cancelled_in is not None)
        await pilot.pause(0.1)
        assert not screen.session.busy
        type_kernel(screen, "pass")
        await pilot.press("f17")  # runs the baseline, which was not queued before
        await until(pilot, lambda: result_of(screen))


async def test_timing_against_a_revision_asks_in_doubt(open_app, save_kernel, until) -> None:
    def said(text: str) -> bool:
        return any(text in str(note.message) for note in app._notifications)

    async with open_app(problem="13") as (app, pilot):
        screen = app.screen
        await save_kernel(pilot, "wrong")
        await until(pilot, lambda: [record.verdict for record in screen.session.records] == ["WRONG_RESULT"])
        await save_kernel(pilot, "wait")
        await until(pilot, lambda: screen.session.state.phase == "check" and not result_of(screen))
        await pilot.press("f6")
        await until(pilot, lambda: getattr(app.screen, "entries", None) and app.screen.focused is not None)
        history = app.screen
        kernels = [entry.sha256 for entry in history.entries]
        running, at = (kernels.index(content_hash(text)) for text in ("wait", "wrong"))
        assert history.query_one("#runs").get_cell_at((running, 1)).plain == "running"
        assert history.counted == "1 of 1 runs"
        history.query_one("#runs").move_cursor(row=at)
        await pilot.pause()
        await pilot.press("t")
        assert said("✗ WRONG. A run is in progress. t again")
        assert screen.session.busy
        await history.follow()  # as when a run has ended between both presses
        await pilot.press("t")
        await until(pilot, lambda: app.screen is screen and screen.session._request.versus is not None)
        await until(pilot, lambda: app.focused is screen.editor)


async def test_text_that_was_never_run_is_in_history(open_app, type_kernel, until, go_to, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        type_kernel(app.screen, "typed, and never run")
        await go_to(pilot, app.picker, "f10")
        app.open_problem(app.services.catalogue.find("13"), text="# from a template")
        await until(pilot, lambda: app.screen.editor.text == "# from a template")
        await pilot.press("f6")
        await until(pilot, lambda: "not run" in screen_text(app) and "typed, and never run" in screen_text(app))
        history = app.screen
        await history.session.run(Kernel("pass"))  # it ends while the history is open
        await until(pilot, lambda: app.screen is history and "✓ PASS" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: app.screen.editor.text == "typed, and never run")
        replaced, kept = content_hash("# from a template"), app.services.workspace.kept_of
        await until(pilot, lambda: replaced in kept(app.screen.session.path))  # undo ends with the app


async def test_the_setting_dialog_changes_what_is_run(open_app, type_kernel, until, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = app.screen
        type_kernel(screen, "pass")
        await pilot.press("f4")
        await until(pilot, lambda: bool(app.screen.query("#size-M")))
        app.screen.query_one("#size-M").value = "0"
        await until(pilot, lambda: "sizes are from 1 to" in screen_text(app))
        await pilot.press("f5")
        assert app.screen.query("#size-M")  # not taken
        app.screen.query_one("#size-M").value = "64"
        app.screen.query_one("#world").value = 4
        await pilot.press("f5")
        await until(pilot, lambda: result_of(screen))
        assert screen.session.state.setting.sizes["M"] == 64
        assert screen.session.state.setting.world == 4


async def test_run_of_other_kernel_is_not_shown_here(
    open_app, type_kernel, save_kernel, events, until, go_to, screen_text
) -> None:
    async with open_app(problem="13") as (app, pilot):
        engine = app.services.engine
        await save_kernel(pilot, "wait")
        await until(pilot, lambda: app.screen.session.state.phase == "check")
        await go_to(pilot, app.picker, "f10")
        app.open_problem(app.services.catalogue.find("1"))
        await until(pilot, lambda: isinstance(app.screen, KernelScreen) and app.screen.editor.text != "")
        engine._on_event(replace(events("pass")[-1], run_id=engine.running))
        await until(pilot, lambda: 13 in app.services.standings)
        await pilot.pause(0.2)
        assert not app.screen.session.state.run_id
        assert "✓ PASS" not in screen_text(app)
        type_kernel(app.screen, "pass")
        await pilot.press("f5")
        await until(pilot, lambda: result_of(app.screen))


@pytest.mark.parametrize("ends", ["after", "before", "never"])
async def test_left_run_is_shown_when_kernel_is_reopened(
    open_app, type_kernel, save_kernel, events, until, go_to, screen_text, ends
) -> None:
    async with open_app(problem="13") as (app, pilot):
        engine = app.services.engine
        await save_kernel(pilot, "wait")
        await until(pilot, lambda: app.screen.session.state.phase == "check")
        run_id, verdict = engine.running, replace(events("pass")[-1], run_id=engine.running)
        await go_to(pilot, app.picker, "f10")
        if ends == "before":
            engine._on_event(verdict)
        app.open_problem(app.services.catalogue.find("13"))
        await until(pilot, lambda: isinstance(app.screen, KernelScreen) and app.screen.session.state.run_id == run_id)
        session = app.screen.session
        if ends != "before":
            assert session.busy
            await until(pilot, lambda: "esc twice cancels" in screen_text(app))
        if ends == "never":
            await pilot.press("escape", "escape")
            await until(pilot, lambda: "CANCELLED" in screen_text(app))
            return
        if ends == "after":
            engine._on_event(verdict)
        await until(pilot, lambda: "✓ PASS" in screen_text(app) and not session.busy)
        type_kernel(app.screen, "pass")
        await until(pilot, lambda: f"revision {session.state.sha256[:8]}" in screen_text(app))


async def test_history_searches_notes_and_marks(open_app, save_kernel, until, screen_text, monkeypatch) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = app.screen
        for number, text in enumerate(("pass", "pass\nring", "pass\ntree"), 1):
            await save_kernel(pilot, text)
            await until(pilot, lambda: len(app.services.store.history(13)) == number and not screen.session.busy)  # noqa: B023
        read = HistoryScreen.read_entries
        monkeypatch.setattr(HistoryScreen, "read_entries", lambda screen: (time.sleep(0.5), read(screen))[1])
        await pilot.press("f6", "down", "n", *"two-shot, ring=2", "enter")  # keys wait for the rows
        await until(pilot, lambda: isinstance(app.screen, HistoryScreen) and "two-shot, ring=2" in screen_text(app))
        await pilot.press("slash", *"ring=2", "enter")
        await until(pilot, lambda: [entry.sha256 for entry in app.screen.entries] == [content_hash("pass\nring")])
        await pilot.press("m", "escape", "up", "m", "slash", *"marked", "enter")
        await until(pilot, lambda: len(app.screen.entries) == 2 and "1.400  1.600" in screen_text(app))
        await pilot.press("escape")
        await pilot.resize_terminal(60, 24)
        await until(pilot, lambda: "enter restore · space diff · t time · F1 keys · esc ─╯" in screen_text(app))
        noisy = record("r", outcome="too noisy", clock="call", baseline_us=Microseconds(call=80.0, device=None))
        timed = [record(f"t{us}", faster=1.5, contender_us=Microseconds(us, None)) for us in (90.0, 120.0)]
        older = app.screen.run_worker(app.screen._read())
        await pilot.pause()  # it has begun, and ends last
        monkeypatch.setattr(HistoryScreen, "read_entries", lambda screen: [noisy, *timed])  # it also reads by itself
        monkeypatch.setattr(kernel_session.KernelSession, "in_setting", lambda session, runs: runs)
        await app.screen._read()
        await older.wait()
        parts = "~ too noisy", "best so far, µs  120.0 → 90.0"  # a run without an interval has its outcome
        await until(pilot, lambda: all(part in screen_text(app) for part in parts))
        assert [str(column.label).strip() for column in app.screen._table.ordered_columns][-1] == "baseline µs"


@pytest.mark.parametrize("player", ["you", "model:m"])
async def test_a_copy_with_other_comments_has_the_verdict(open_app, save_kernel, until, monkeypatch, player) -> None:
    monkeypatch.setattr(kernel_session, "view", partial(view, player=player))
    async with open_app(problem="13") as (app, pilot):
        screen = app.screen
        await save_kernel(pilot, "pass")
        await until(pilot, lambda: screen.session.earlier(Kernel("# a copy\npass\n")) is not None)
        assert screen.session.earlier(Kernel("pass\nring")) is None
        ring = screen.session.path.with_name("ring.py")
        app.services.workspace.save(ring, "pass")
        app.open_problem(screen.problem, ring)
        await until(pilot, lambda: app.screen is not screen and app.screen.session.from_journal)
        await pilot.press("ctrl+l")  # a run of this kernel
        await until(pilot, lambda: app.screen.session.state.kernel_name == "ring.py")
