"""The board in a real terminal: opened by its key, its views, filtered, closed."""

from pathlib import Path

import pytest
from real_terminal import Screen
from stored_runs import record

from arena.paths import Paths
from arena.records.index import Store
from arena.settings import Settings, save_settings

pytestmark = pytest.mark.slow
F3 = "\x1bOR"


@pytest.fixture
def results(paths: Paths) -> Path:
    """Two results of a person and one of the house."""
    save_settings(Settings(device="cpu", world=2), paths)
    store = Store(paths.database, paths.runs)
    for problem, player, speedup in ((1, "you", 1.5), (13, "you", 2.25), (1, "house", 2.5)):
        store.record(record(f"{player}-{problem}", player, speedup, problem_id=problem))
    store.close()
    return paths.database


@pytest.mark.usefixtures("results")
def test_the_board_is_opened_filtered_and_closed() -> None:
    app = Screen("screens.main")
    try:
        app.shows("Parallelism", "solved 2 of")
        app.process.send("b")
        app.shows("▸by problem", "▲ 1.50×", "▲ 2.25×", "▲ 2.50×", "F3 view")
        app.process.send("/")
        app.shows("id, words or category of problems")
        app.process.send("row-par")
        app.shows_without("▲ 1.50×")
        app.shows("Row-parallel GEMM")
        app.process.send("\r" + F3)
        app.shows("▸by category", "ParallelKernelBench")
        app.process.send(F3 + F3 + F3)
        app.shows("▸by problem", "▲ 2.25×")
        app.process.send("\x1b")
        app.shows("▸by problem", "▲ 2.50×")
        app.process.send("\x1b")
        app.shows_without("▸by problem")
        app.shows("Parallelism")
        app.process.send("\x11")  # ctrl+q
        assert app.ends() == 0
    finally:
        app.close()
