"""A pane of the kernel screen needs only a module and an entry in the table of panes."""

import asyncio
from random import Random
from typing import ClassVar

import pytest
from msgspec.structs import replace
from textual.events import Resize
from textual.geometry import Size

from sandbox.protocol.events import RankChecked
from screens.kernel.panes import result_pane
from screens.kernel.panes.correctness import map_cells, rank_parts
from screens.kernel.panes.failure_view import FailureView
from screens.kernel.panes.log_pane import LINES_KEPT, LogPane, row_starts
from screens.kernel.panes.run_pane import RunPane
from screens.kernel.run_update import LogLine, RunUpdate
from screens.widgets.text_lines import PlainStatic

pytestmark = pytest.mark.slow


class RoundsPane(PlainStatic, RunPane):
    """How many rounds were timed."""

    DEFAULT_CSS = "RoundsPane { height: 3; padding: 0 1; }"
    NAME: ClassVar[str] = "rounds"
    TITLE: ClassVar[str] = "Rounds"
    LETTER: ClassVar[str] = "r"

    def show(self, update: RunUpdate) -> None:
        self.update(f"{len(update.state.samples)} rounds were timed")


async def test_pane_named_in_table_is_shown_with_frame(
    open_app, events, until, screen_text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_pane, "PANES", (RoundsPane, *result_pane.PANES))
    async with open_app(problem="13", size=(160, 50)) as (app, pilot):
        for event in events("pass"):
            app.screen.apply(event)
        await until(pilot, lambda: "40 rounds were timed" in screen_text(app))
        await until(pilot, lambda: "╭─ Rounds ─" in screen_text(app))
        await until(pilot, lambda: "✓ PASS" in screen_text(app))
        await pilot.resize_terminal(80, 45)
        app.screen.show_view("result")
        await until(pilot, lambda: "╭─ Rounds ─" in screen_text(app))
        app.screen.show_view("log")
        await until(pilot, lambda: "╭─ Rounds ─" not in screen_text(app) and "╭─ Log ─" in screen_text(app))


async def test_new_sizes_leave_nothing_blank_or_stale(open_app, events, until, screen_text, monkeypatch) -> None:
    async with open_app(problem="13", size=(160, 45)) as (app, pilot):
        for event in events("told"):
            app.screen.apply(event)
        app.screen.draw(force=True)
        whole = ("faster", "40 rounds", "rank 3 ✓", "gloo baseline", "finished: PASS", "def solution")
        await until(pilot, lambda: all(words in screen_text(app) for words in whole))
        drawn, display, pane = [], app._display, app.screen.query_one("#result-pane")

        def displayed(screen, shown) -> None:
            drawn.append(app._batch_count or screen.has_class("-wide") is (screen._compositor.size.width == 160))
            display(screen, shown)

        monkeypatch.setattr(app, "_display", displayed)
        for narrow in ((60, 24), (40, 15)):
            await pilot.resize_terminal(*narrow)
            app.screen.show_view("result")
            await until(pilot, lambda: "Speedup" in screen_text(app))
            if narrow[0] == 40:
                await until(pilot, lambda: "rank 2 ✓ max" in screen_text(app))
                app.screen.scroll_to_center(pane.panes[2])  # at once: the focus may move on
                assert pane.scroll_y > 0
            await pilot.resize_terminal(160, 45)
            await until(pilot, lambda: app.screen.view == "kernel" and all(each in screen_text(app) for each in whole))
        assert all(drawn), "a layout without the styles of its size was drawn"

        # Whatever sizes come while others are drawn, no screen behind a dialog is left with a layout that nobody starts.
        chance, sizes = Random(3), [app.size]

        def settled() -> bool:
            behind = app.screen_stack[1:]
            waits = app._resize_event or app._batch_count or any(each._layout_required for each in behind)
            has_bar = pane.show_vertical_scrollbar is (pane.virtual_size.height > pane.container_size.height)
            return not waits and has_bar and all(each._compositor.size == app.size == sizes[-1] for each in behind)

        await pilot.press("f9", "f1")
        await until(pilot, lambda: len(app.screen_stack) == 4)
        for _ in range(20):
            for _ in range(chance.randint(1, 3)):
                sizes.append(Size(chance.choice([60, 99, 100, 110, 160]), chance.choice([15, 24, 34, 45])))
                app._driver._size = sizes[-1]
                app.post_message(Resize(sizes[-1], sizes[-1]))
                await asyncio.sleep(chance.choice([0, 0.01, 0.03, 0.06]))
            await until(pilot, settled)
        dialog, turns = app.screen_stack[-2], iter(range(1, 100_000))
        for asked in (True, False, True):  # at last right after a layout: the timer of layouts cannot fire at once
            if asked:
                dialog.query_one("#report").refresh(layout=True)
            while (dialog._layout_required and dialog._update_timer._active.is_set()) is not asked and next(turns, 0):
                await asyncio.sleep(0)
        dialog._screen_resized(app.size)  # as the screen in front does
        await until(pilot, settled)
        await app.screen._on_message(Resize(Size(61, 20), Size(61, 20)))  # the terminal has another size by now
        assert settled()


async def test_long_log_line_wraps_and_is_copied_whole(open_app, until, screen_text) -> None:
    async with open_app(problem="13", size=(100, 40)) as (app, pilot):
        log = app.screen.query_one(LogPane)
        text = " ".join(f"word{number}" for number in range(60))
        log.write([LogLine("short"), LogLine(text, rank=1)])
        app.screen.go_to("log")
        await until(pilot, lambda: log.has_focus and "word59" in screen_text(app))
        assert log.max_scroll_x == 0
        await pilot.press("up", "y")
        await until(pilot, lambda: app.clipboard == text)
        log.cursor = None
        log.action_copy()
        assert app.clipboard == f"short\n{text}"


async def test_cursor_stays_in_log_while_lines_are_displaced(open_app, until) -> None:
    async with open_app(problem="13", size=(100, 40)) as (app, pilot):
        log = app.screen.query_one(LogPane)
        log.write([LogLine(f"line {number}", rank=1) for number in range(30)])
        app.screen.go_to("log")
        await until(pilot, lambda: log.has_focus)
        await pilot.press("1", "up")
        await until(pilot, lambda: log.cursor == 29)
        log.write([LogLine("other", rank=0)] * (LINES_KEPT - 10))
        await pilot.press("y")
        await until(pilot, lambda: app.clipboard == "line 29")
        assert log.cursor == 9
        log.write([LogLine("other", rank=0)] * LINES_KEPT)
        assert log.cursor is None
        await pilot.resize_terminal(120, 40)
        await pilot.press("y", "enter")


async def test_an_error_is_copied_with_one_key(open_app, events, until, screen_text) -> None:
    async with open_app(problem="13", size=(160, 40)) as (app, pilot):
        for event in events("error"):
            app.screen.apply(event)
        await until(pilot, lambda: "ctrl+o s goes to this pane: enter jumps to line 7, y copies" in screen_text(app))
        app.screen.go_to("answer")
        await until(pilot, lambda: isinstance(app.focused, FailureView))
        await pilot.press("y")
        assert app.clipboard.startswith("SyntaxError: invalid syntax\nThe file must define")
        assert 'File "kernel.py", line 7' in app.clipboard
        for event in events("wrong"):
            app.screen.apply(event)
        await until(pilot, lambda: not app.screen.session.changed)
        told = [line.text.split()[0] for line in app.screen.query_one(LogPane)._lines if "WRONG after" in line.text]
        assert told == ["WRONG"]  # after the check, and not again at the end


def test_rows_of_the_log_start_at_words() -> None:
    words = "waiting: another run is timing (gemm_allreduce of root, process 6191)"
    assert row_starts(words, 44) == [0, words.index("(")]
    assert row_starts("x" * 100, 40) == [0, 40, 80]
    assert row_starts(" " * 38 + "^^^^", 40) == []
    assert row_starts(" " * 36 + "^^^^", 40) == [0]
    assert row_starts("", 40) == row_starts("x" * 40, 40) == [0]
    assert row_starts(f"{'x' * 40} y", 40) == [0, 41]


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (60, "rank 0 ✗ ▕████████▏ 98.4 % [0, 0] -0.744141 ≠ -1.234567"),
        (46, "rank 0 ✗  98.4 % [0, 0] -0.744141 ≠ -1.234567"),
        (40, "rank 0 ✗ [0, 0] -0.744141 ≠ -1.234567"),
    ],
)
def test_the_value_that_a_rank_got_is_whole(events, width: int, said: str) -> None:
    checked = next(event for event in events("wrong") if isinstance(event, RankChecked) and not event.ok)
    output = replace(checked.outputs[0], first_wrong=[0, 0], expected="-0.744141", got="-1.234567", where=[1.0] * 8)
    rank = replace(checked, rank=0, outputs=[replace(output, wrong=984, total=1000)])
    parts = rank_parts(rank, width, map_cells([rank], width))
    assert "".join(part if isinstance(part, str) else part[0] for part in parts) == said


def test_maps_of_all_ranks_have_one_scale(events) -> None:
    wrong = next(event for event in events("wrong") if isinstance(event, RankChecked) and not event.ok)
    outputs = [replace(wrong.outputs[0], where=[1.0] * 64, got=got) for got in ("-1.2", "-123456.789012")]
    ranks = [replace(wrong, rank=rank, outputs=[output]) for rank, output in enumerate(outputs)]
    cells = map_cells(ranks, 70)
    assert len({len(rank_parts(rank, 70, cells)[3][0]) for rank in ranks}) == 1
