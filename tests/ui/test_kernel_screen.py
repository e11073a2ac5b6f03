"""The kernel screen with recorded runs, which update the same state as live runs."""

import os
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from textual.widgets import ContentSwitcher

import screens.base
from arena.errors import KernelsLocked
from arena.records.header import read_header
from arena.workspace.kernels import KernelLocks
from sandbox.protocol.kernel_files import Kernel
from screens.base import COMPLAINED_S
from screens.kernel import editing_screen
from screens.kernel.headline import Answer, KernelHeadline
from screens.kernel.panes.failure_view import FailureView
from screens.kernel.panes.log_pane import LogPane
from screens.kernel.panes.other_sizes_pane import OtherSizesPane
from screens.kernel.run_update import LogLine

pytestmark = pytest.mark.slow


async def play(screen, until, events) -> None:
    for event in events:
        screen.apply(event)
    screen.draw(force=True)
    log = screen.query_one(LogPane)
    await until(None, lambda: log.is_mounted and screen.region.area > 0)


async def test_reopened_screen_knows_worlds_and_earlier_verdicts(
    open_app, until, go_to, screen_text, monkeypatch
) -> None:
    said, show = [], KernelHeadline.show

    def note(self: KernelHeadline, answer: Answer, *more: str) -> None:
        said.append(answer.words)
        show(self, answer, *more)

    async with open_app(problem="13", size=(160, 45)) as (app, pilot):
        for words in ("NOT RUN YET", "Each rank is compared with a float64 oracle."):
            await until(pilot, lambda: words in screen_text(app))  # noqa: B023
        assert "of bound" not in screen_text(app)  # nothing says yet that it runs on GPUs
        await until(pilot, lambda: "ready (spare process started)" in screen_text(app))
        app.screen.editor.text = "pass"
        await go_to(pilot, "✓ PASS", "ctrl+s")
        await until(pilot, lambda: 13 in app.services.standings)
        app.screen.action_problems()
        await until(pilot, lambda: app.screen is app.picker)
        app.services.last_runs.clear()  # as after a restart of the app
        monkeypatch.setattr(KernelHeadline, "show", note)
        app.open_problem(app.services.catalogue.find("13"))
        shown = ("F5 runs it again", "[1.40, 1.60]", "what both clocks say", "finished: PASS")
        await until(pilot, lambda: all(words in screen_text(app) for words in shown))  # the same in all panes
        assert set(said) == {"OPENING", "✓ PASS"}
        assert app.screen.query_one("#headline").answer.colour == "muted"
        assert app.screen.query_one("#result-pane").has_class("outdated")
        await pilot.resize_terminal(60, 30)
        await until(pilot, lambda: "again · problem 13" in screen_text(app))  # the problem is named in few columns, too
        await go_to(pilot, "of revision", "x")
        await pilot.press("backspace", "f20")
        await until(pilot, lambda: app.screen.session.others.update.found)


async def test_a_failure_is_plain_text_with_its_place(open_app, events, until, go_to, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        await play(app.screen, until, events("wrong"))
        assert app.screen.query_one("#answer", ContentSwitcher).current == "failure"
        for words in ("rank 2 ✗", "a barrier", "✗ WRONG", "12.5 % [64, 0] 12.5 ≠ 0.0", "0.0 [/bold]"):
            await until(pilot, lambda: words in screen_text(app))  # noqa: B023
        await play(app.screen, until, events("error"))
        for words in ("SyntaxError: invalid syntax [red]", "No output was compared."):
            await until(pilot, lambda: words in screen_text(app))  # noqa: B023
        assert "\x1b" not in screen_text(app)
        app.screen.go_to("log")
        await until(pilot, lambda: isinstance(app.focused, LogPane))
        await go_to(pilot, app.screen.editor, "enter")
        editor = app.screen.editor
        assert editor.cursor_location[0] == 6
        line = editor.document.get_line(6)
        editor.insert("# one\n# two\n", (0, 0))
        await until(pilot, lambda: [*editor.marks.words] == [8])
        app.screen.go_to("answer")
        await until(pilot, lambda: isinstance(app.focused, FailureView))
        await go_to(pilot, editor, "enter")
        assert editor.cursor_location[0] == 8
        assert editor.document.get_line(8) == line


async def test_the_log_shows_one_rank_and_its_end(open_app, events, until, screen_text) -> None:
    """All lines come at once, more than the log has rows, before it has a scrollbar."""
    async with open_app(problem="13") as (app, pilot):
        log = app.screen.query_one(LogPane)
        log.write([LogLine(f"line {number} of it") for number in range(40)])
        await until(pilot, lambda: "line 39 of it" in screen_text(app))
        assert "line 0 of it" not in screen_text(app)
        await play(app.screen, until, events("wrong"))
        log.focus()
        await pilot.press("0")
        assert all(line.rank in (None, 0) for line in log._visible)
        await pilot.press("a")
        assert any(line.rank == 2 for line in log._visible)


async def test_misfit_keys_give_way_to_help_and_quit(open_app, until, screen_text) -> None:
    def keys() -> str:
        return screen_text(app).splitlines()[-1].rstrip()

    async with open_app(problem="13", size=(40, 30)) as (app, pilot):
        await until(pilot, lambda: keys() == "^s save & run  ^q quit  F1 help  ^p menu")
        await pilot.resize_terminal(60, 30)
        await until(pilot, lambda: keys() == "^s save & run  ^o panes  F10 back  ^q quit  F1 help  ^p menu")
        await pilot.resize_terminal(160, 45)
        await until(pilot, lambda: "F8 duel" in keys() and "^q quit  F1 help  ^p menu" in keys())
        assert "^o panes  F10 back  ^t zoom  F5 run" in keys()
        await pilot.resize_terminal(80, 30)
        app.screen.show_view("log")
        await pilot.resize_terminal(160, 45)
        await until(pilot, lambda: app.screen.view == "kernel")  # all panes are visible
        await until(pilot, lambda: app.screen.query_one("#source-pane").region.area > 0)


async def test_baseline_diff_and_card(open_app, type_kernel, until, go_to, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        app.screen.show_view("diff")
        await until(pilot, lambda: "kernel.py is the same as baseline.py" in screen_text(app))
        app.screen.session.path.write_text("pass\n# saved elsewhere")
        await until(pilot, lambda: "+# saved elsewhere" in screen_text(app))
        app.screen.show_view("kernel")
        type_kernel(app.screen, app.screen.problem.baseline_source + "# mine\n")
        await go_to(pilot, "▸baseline", "f3")
        await go_to(pilot, "+# mine", "f3")
        await go_to(pilot, "C = Σ_r A_r · B_r", "f3")


async def test_quitting_with_unsaved_text_names_the_draft(open_app, until, type_kernel) -> None:
    async with open_app(problem="13") as (app, pilot):
        app.screen.editor.text = app.screen.editor.text + "# more"
        await until(pilot, lambda: app.screen.editor.dirty)
        said = []
        app.exit = lambda message=None: said.append(message)
        await pilot.press("ctrl+q")
        assert said == [
            "The unsaved text of 13_gemm_allreduce is kept as a draft: `pkb-arena 13_gemm_allreduce` offers it."
        ]


async def test_quitting_twice_loses_text_that_cannot_be_kept(open_app, until) -> None:
    async with open_app(problem="13") as (app, pilot):
        app.services.workspace.root.joinpath(".drafts").write_text("")  # no folder can be made here
        app.screen.editor.text = app.screen.editor.text + "# more"
        await until(pilot, lambda: app.screen.editor.dirty)
        said = []
        app.exit = lambda message=None: said.append(message)
        await pilot.press("ctrl+q")
        assert said == []
        assert any("ctrl+q again quits without it" in told.message for told in app._notifications)
        await pilot.press("ctrl+q")
        assert [message.partition(":")[0] for message in said] == ["Unsaved text could not be kept"]


async def test_refused_save_is_confirmed_and_not_queued(open_app, until, screen_text, monkeypatch) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen, path = app.screen, app.screen.session.path
        text = path.read_text()
        path.write_bytes(b"\xff\xfe\x00")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: any("ctrl+s again replaces it" in told.message for told in app._notifications))
        await until(pilot, lambda: "QUEUED" not in screen_text(app))
        now = screens.base.time.monotonic
        monkeypatch.setattr(screens.base, "time", SimpleNamespace(monotonic=lambda: now() + COMPLAINED_S - 2.0))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: path.read_bytes() == text.encode())
        await until(pilot, lambda: not screen.was_pressed("save"))


async def test_problem_edited_elsewhere_can_be_read_and_run(
    open_app, until, screen_text, services, type_kernel
) -> None:
    other = KernelLocks(services.paths.workspace)
    other.take("13_gemm_allreduce")
    async with open_app(problem="13") as (app, pilot):
        screen = app.screen
        before = screen.editor.text
        await until(pilot, lambda: any(f"process {os.getpid()}" in told.message for told in app._notifications))
        await until(pilot, lambda: "read-only" in screen_text(app))
        await pilot.press("x", "ctrl+s")
        screen.take_over(Kernel("another text"))
        assert screen.editor.text == before
        assert not screen.session.busy
        app.open_problem(app.services.catalogue.find("1"))
        await until(pilot, lambda: app.screen is not screen and app.screen.editor.text != "")
        assert not app.screen.editor.read_only
        other.release("13_gemm_allreduce")
        app.open_problem(app.services.catalogue.find("13"))
        await until(pilot, lambda: app.screen.problem.id == 13 and app.screen.editor.text != "")
        assert not app.screen.editor.read_only
        with pytest.raises(KernelsLocked):
            other.take("13_gemm_allreduce")


async def test_unsaved_text_is_written_before_another_editor_opens(open_app, until, type_kernel, monkeypatch) -> None:
    opened = []

    async def edited(app, settings, path, line) -> str:
        opened.append((path.read_text(), line))
        return "no editor here"

    monkeypatch.setattr(editing_screen, "edit_outside", edited)
    async with open_app(problem="13") as (app, pilot):
        type_kernel(app.screen, "pass\n# typed")
        await pilot.press("up")
        await app.screen.run_action("edit_outside")
        await until(pilot, lambda: any("no editor here" in str(note.message) for note in app._notifications))
        assert opened == [("pass\n# typed", 1)]
        assert not app.screen.editor.dirty


KEY = "shift+f8"


async def run(app, pilot, save_kernel, until, source: str = "pass") -> None:
    await save_kernel(pilot, source)
    await until(pilot, lambda: app.screen.session.state.result is not None)


async def test_faster_kernel_is_judged_at_other_sizes(open_app, save_kernel, until, go_to, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = app.screen
        assert "Other sizes" not in screen_text(app)
        await go_to(pilot, "No PASS yet", KEY)
        await run(app, pilot, save_kernel, until)
        own = screen.session.state.run_id
        await pilot.press(KEY)
        await until(pilot, lambda: all(said in screen_text(app) for said in ("faster: all", "✓ pass")))
        text = screen_text(app)
        assert (text.count("▲ 1.50× faster"), text.count("✓ pass")) == (2, 1)
        assert screen.session.state.run_id == own  # the verdict that is shown stays the kernel's own
        headers = map(read_header, app.services.paths.runs.glob("*.jsonl"))
        assert [header.other_than for header in headers if header.run_id != own] == [own] * 3
        assert "✓ PASS  ▲ faster" in text
        panes = screen.query_one("#result-pane")
        assert sum(pane.outer_size.height for pane in panes.panes) <= panes.size.height
        await run(app, pilot, save_kernel, until, "pass\n# again")
        await until(pilot, lambda: "Other sizes" not in screen_text(app))


async def test_a_run_of_the_user_ends_it(open_app, save_kernel, until) -> None:
    async with open_app(problem="13") as (app, pilot):
        screen = app.screen
        await run(app, pilot, save_kernel, until)
        screen.session._judged = replace(screen.session._judged, source="wait")
        await pilot.press(KEY)
        await until(pilot, lambda: screen.session.others.running and screen.session.others.update.phase == "check")
        await until(pilot, lambda: screen.query_one(OtherSizesPane).rows == 3)
        await pilot.press("f5")
        await until(pilot, lambda: not screen.session.others.running and screen.session.state.result is not None)
        assert screen.session.state.verdict == "PASS"
        await until(pilot, lambda: screen.query_one(OtherSizesPane).empty)
