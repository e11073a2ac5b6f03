"""The board: results of all players by problem, by category and as fast_p."""

import pytest
from stored_runs import record

from arena.board.gathering import gather
from arena.board.tables import text_lines
from arena.records.run_record import RunRecord
from sandbox.protocol.verdict import Verdict
from screens.kernel.screen import KernelScreen
from screens.picker.board import BoardDialog

pytestmark = pytest.mark.slow


def stored(
    problem: int,
    player: str,
    speedup: float,
    verdict: Verdict = Verdict.PASS,
    outcome: str = "faster",
    preset: str = "tiny",
) -> RunRecord:
    """A finished run."""
    run_id = f"{player}-{problem}-{preset}"
    return record(run_id, player, speedup, problem_id=problem, verdict=verdict, outcome=outcome, preset=preset)


async def test_players_stand_side_by_side_in_views(open_app, until, go_to, screen_text, services) -> None:
    async with open_app() as (app, pilot):
        for entry in (
            stored(1, "you", 1.5),
            stored(13, "you", 0.5, outcome="slower"),
            stored(1, "house", 2.5),
            stored(13, "model:opus", 1.0, Verdict.WRONG_RESULT),
            stored(2, "you", 3.0, preset="paper"),
        ):
            services.store.record(entry)
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, BoardDialog) and "▲ 2.50×" in screen_text(app))
        assert not app.screen.query_one("#board-filter").focusable  # letters begin no search
        lines = screen_text(app).splitlines()
        head = next(line for line in lines if "problem " in line and "model:opus" in line)
        assert head.index("you") < head.index("house") < head.index("model:opus")
        row = next(line for line in lines if " 13 " in line and "Row-parallel" in line and "▼ 0.50×" in line)
        assert "✗ wrong" in row

        app.screen._read_again()
        earlier = [worker for worker in app.workers if worker.node is app.screen]
        app.screen._read_again()
        assert {worker.is_cancelled for worker in earlier} == {True}  # older rows may come later
        await go_to(pilot, "▸by category", "f3")
        lines = screen_text(app).splitlines()
        row = next(line for line in lines if "all  " in line and "/87" in line)
        assert " 2 · 1 /2" in row  # you, at tiny: both solved, one faster
        assert "36 · 27 /87" in row  # the published totals, as printed
        for columns in (60, 160):
            await pilot.resize_terminal(columns, 45)
            await until(pilot, lambda: ("→ more columns" in screen_text(app)) == (columns == 60))  # noqa: B023

        await go_to(pilot, "▸fast_p", "f3")
        table = app.screen.query_one("#board")
        await until(pilot, lambda: 0 < table.virtual_size.width <= table.size.width)  # no column is cut
        row = next(line for line in screen_text(app).splitlines() if "> 2×" in line)
        printed = [line for line in text_lines(gather(services.paths, app.services.catalogue)) if " person " in line]
        assert "0 % [0, 66]" in row  # you, of two problems
        assert "100 % [21, 100]" in row  # the house, of the only one that it tried
        assert any("0 % [0, 66]" in line for line in printed)  # as `pkb-arena board` prints it
        await go_to(pilot, "paper · 2 ranks", "p")
        row = next(line for line in screen_text(app).splitlines() if "> 2×" in line)
        assert "100 % [21, 100]" in row  # you, of the only problem at this preset

        await go_to(pilot, "▸bound", "f3")
        assert table.row_count == 2  # of all and of one category: none of dashes alone
        await go_to(pilot, "▸by problem", "f3")
        await pilot.press("slash", *"row-par 13")
        await until(pilot, lambda: "Row-parallel" in screen_text(app) and "▲ 2.50×" not in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, BoardDialog) and "▲ 2.50×" in screen_text(app))
        await go_to(pilot, KernelScreen, "slash", *"13", "enter", "enter")
        assert app.screen.problem.id == 13
