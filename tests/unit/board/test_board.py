"""The board: players in order, counts by category, fast_p, and published results."""

from pathlib import Path

import pytest
from stored_runs import record

from arena.board.definitions import FACTORS, Tally, fast_p, order_of, read_published, tally
from arena.paths import Paths
from arena.records.index import Store
from arena.records.run_record import RunRecord
from arena.workspace.named_kernels import BASELINE
from problems.catalogue import load_catalogue
from sandbox.protocol.verdict import Verdict


def entry(
    number: int, problem: int = 13, player: str = "you", kernel: str = "kernel.py",
    verdict: Verdict = Verdict.PASS, speedup: float | None = None, outcome: str = "",
) -> RunRecord:  # fmt: skip
    """A finished run."""
    return record(
        str(number),
        player,
        speedup,
        problem_id=problem,
        kernel_name=kernel,
        verdict=verdict,
        outcome=outcome,
        created=number,
    )


@pytest.fixture
def store(paths: Paths) -> Store:
    return Store(paths.database, Path("nowhere"))


def test_players_are_those_who_ran_a_kernel_of_their_own(store: Store) -> None:
    for number, (player, kernel) in enumerate(
        [("you", "kernel.py"), ("you", BASELINE), ("baseline", BASELINE), ("model:b", "b-1.py"), ("house", "house")]
    ):
        store.record(entry(number, player=player, kernel=kernel))
    assert order_of(store.players()) == ["you", "house", "model:b"]


def test_a_slow_kernel_is_solved_and_a_wrong_one_is_not(store: Store) -> None:
    problems = [load_catalogue().find(name) for name in ("1", "2", "13", "14")]
    for number, (problem, verdict, speedup, outcome) in enumerate(
        [(1, Verdict.PASS, 2.5, "faster"), (2, Verdict.PASS, 1.0, "same speed"), (13, Verdict.WRONG_RESULT, None, "")]
    ):
        store.record(entry(number, problem, verdict=verdict, speedup=speedup, outcome=outcome))
    standings = store.standings()
    assert tally(standings, problems) == Tally(solved=2, faster=1, problems=4)
    assert [fast_p(standings, problems, p) for p in FACTORS] == [0.5, 0.5, 0.25, 0.25, 0.0]
    assert fast_p(standings, [], 1.0) == 0.0


def test_published_totals_are_the_printed_ones_and_rows_add_up_to_nearly_as_much() -> None:
    published = read_published()
    assert set(published.problems) == set(load_catalogue().categories)
    totals = {model.name: published.tally(model, "") for model in published.model}
    assert totals == {
        "GPT-5.5": Tally(36, 27, 87),
        "Claude Opus 4.7": Tally(31, 20, 87),
        "Gemini 3 Pro": Tally(30, 19, 87),
        "GLM-5.1": Tally(7, 3, 87),
        "DeepSeek V4 Pro": Tally(3, 1, 87),
    }
    for model in published.model:
        assert sum(model.solved) == model.printed.solved
        assert abs(sum(model.faster) - model.printed.faster) <= 3
        assert len(model.solved) == len(model.faster) == len(published.problems)
        assert len(model.curve) == len(FACTORS)
        assert all(fast <= right for fast, right in zip(model.faster, model.solved, strict=True))
    assert published.tally(published.model[0], "context") == Tally(8, 6, 12)
