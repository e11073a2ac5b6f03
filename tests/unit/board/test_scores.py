"""Scores against values computed by hand; the board's order, counts by category, fast_p and published results."""

import math
from pathlib import Path

import pytest
from stored_runs import record

from arena.board import definitions
from arena.board.scorecard import ALL, Outcome, ResultPlace, kind_of, scorecard, scorecards
from arena.board.tables import counts_words
from arena.paths import Paths
from arena.records.index import Store
from arena.records.run_record import RunRecord
from arena.workspace.named_kernels import BASELINE
from problems.catalogue import load_catalogue
from sandbox.protocol.verdict import Verdict

PLACE = ResultPlace("tiny", "cpu", 2, "m")


def outcome(problem: int = 1, *, player: str = "model:m", **more: object) -> Outcome:
    known: dict[str, object] = {
        "player": player, "kind": kind_of(player), "place": PLACE, "problem_id": problem, "category": "tensor", "class_": "C",
        "passed": True, "paper": True, "faster": False, "speedup": 1.0, "over_graph": None, "percent": None, "gap_closed": None,
        "noisy": False, "one_size_only": None, "usd": 0.0, "seconds": 1.0,
    }  # fmt: skip
    return Outcome(**(known | more))  # type: ignore[arg-type]


def test_pass_at_k_is_averaged_unbiased_estimate() -> None:
    # 1 - C(3,3)/C(5,3) = 0.9 and 0; there is no pass@3 of the problem with two attempts
    found = definitions.pass_at_k(3, [(5, 2), (5, 0), (2, 2)])
    assert found.value == pytest.approx(0.45)
    assert found.problems == 2
    assert definitions.pass_at_k(1, [(3, 1), (4, 2)]).value == pytest.approx((1 / 3 + 1 / 2) / 2)  # type: ignore[union-attr]
    assert definitions.pass_at_k(2, [(1, 1)]) is None


def test_the_interval_of_a_share_is_wilsons() -> None:
    half = definitions.share([1.0, 0.0])
    assert (half.value, half.low, half.high) == pytest.approx((0.5, 0.094531, 0.905469), abs=1e-6)
    none = definitions.share([0.0] * 10)
    assert (none.value, none.low, none.high) == pytest.approx((0.0, 0.0, 0.277533), abs=1e-6)  # z²/(n + z²)
    printed = definitions.share([1.0] * 28 + [0.0] * 59)
    assert (printed.low, printed.high) == pytest.approx((0.2330, 0.4257), abs=2e-4)
    assert definitions.share([]) is None


def test_the_geometric_mean_and_its_interval() -> None:
    found = definitions.geometric_mean([1.0, 2.0, 4.0])
    # logs 0, ln 2, 2 ln 2: standard error ln 2 / sqrt 3, Student's quantile at 2 degrees of freedom 4.30265
    assert found.value == pytest.approx(2.0)
    assert found.low == pytest.approx(2.0 * math.exp(-4.30265 * math.log(2) / math.sqrt(3)), rel=1e-5)
    assert found.high == pytest.approx(2.0 * math.exp(4.30265 * math.log(2) / math.sqrt(3)), rel=1e-5)
    single = definitions.geometric_mean([3.0])
    assert (single.value, single.low, single.high) == (pytest.approx(3.0), 0.0, math.inf)
    assert definitions.geometric_mean([0.0, 3.0, math.inf]) == single
    assert definitions.geometric_mean([]) is None


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (10, 2.22814), (86, 1.98793)]
)
def test_students_quantile(freedom: int, quantile: float) -> None:
    assert definitions.t_quantile(freedom) == pytest.approx(quantile, rel=0.01 if freedom == 3 else 1e-4)


def test_fast_p_needs_right_kernel_beyond_p() -> None:
    assert definitions.is_fast(1.01, True, 1.0)
    assert not definitions.is_fast(1.0, True, 1.0)
    assert not definitions.is_fast(9.0, False, 1.0)
    assert not definitions.is_fast(None, True, 1.0)
    assert definitions.is_fast(None, True, 0.0)


def test_a_scorecard() -> None:
    card = scorecard(
        [
            outcome(1, speedup=2.5, faster=True, percent=50.0, usd=0.5, holds="some"),
            outcome(1, speedup=1.2, percent=12.5, one_size_only=True),
            outcome(2, passed=False, paper=True, speedup=None),
            outcome(2, speedup=4.0, over_graph=1.6, percent=25.0, backend="nccl device"),
            outcome(3, passed=False, paper=False, speedup=None),
            outcome(3, passed=False, paper=False, speedup=None),
        ]
    )
    assert (card.problems, card.attempts, card.most_attempts, card.solved, card.faster) == (3, 6, 2, 2, 1)
    assert card.pass_1.value == pytest.approx((1 + 0.5 + 0) / 3)
    assert card.pass_k.value == pytest.approx(2 / 3)
    assert card.paper_1.value == pytest.approx((1 + 1 + 0) / 3)
    assert [score.value for score in card.fast.values()] == pytest.approx([0.5, 0.5, 1 / 3, 1 / 3, 1 / 6])
    assert card.fast_k["1.5"].value == pytest.approx(2 / 3)
    assert card.fast_graph["1.5"].value == pytest.approx(0.5)  # of the only problem that has it
    assert card.speedup.value == pytest.approx(math.sqrt(math.sqrt(2.5 * 1.2) * 4.0))
    assert card.percent.value == pytest.approx(25.0)
    assert card.one_size_only == 1
    assert card.backends == {"nccl device": 1}
    assert card.holds == {"some": 1}
    assert counts_words(card.holds) == "1 some"
    assert card.usd == pytest.approx(0.5)


def test_scores_against_bound_are_means_where_known() -> None:
    card = scorecard(
        [
            outcome(1, percent=20.0, gap_closed=0.2),
            outcome(1, percent=80.0, gap_closed=0.6),
            outcome(2, percent=10.0, gap_closed=0.0),
            outcome(3, percent=90.0, gap_closed=None),  # the baseline reaches the bound
            outcome(4),  # a machine that was not measured
            outcome(5, passed=False, speedup=None),
            outcome(6, speedup=None, noisy=True),
        ]
    )
    assert (card.percent.value, card.percent.problems) == (pytest.approx((40 * 10 * 90) ** (1 / 3)), 3)
    assert 0 < card.percent.low < card.percent.value < card.percent.high == 100.0
    assert (card.gap_closed.value, card.gap_closed.problems) == (pytest.approx(0.2), 2)
    assert card.gap_closed.low < 0.2 < card.gap_closed.high
    assert card.no_roofline == 1


def test_places_and_players_are_not_mixed() -> None:
    other = ResultPlace("paper", "cpu", 2, "m")
    cards = scorecards(
        [
            outcome(1),
            outcome(2, category="data", class_="A", passed=False),
            outcome(1, place=other, passed=False),
            outcome(1, player="house"),
        ]
    )
    whole = [card for card in cards if card.scope == ALL]
    assert [(card.player, card.place.preset, card.problems) for card in whole] == [
        ("model:m", "paper", 1),
        ("house", "tiny", 1),
        ("model:m", "tiny", 2),
    ]
    part = next(card for card in cards if card.scope == "category:data")
    assert (part.problems, part.solved) == (1, 0)


def test_noisy_result_is_right_and_not_fast() -> None:
    card = scorecard([outcome(1, speedup=None, noisy=True), outcome(2, speedup=3.0)])
    assert (card.solved, card.noisy) == (2, 1)
    assert card.fast["1"].value == pytest.approx(0.5)
    assert (card.speedup.value, card.speedup.problems) == (pytest.approx(3.0), 1)


def test_kinds_of_players() -> None:
    words = ("model:a", "agent:b", "you", "guest", "house", "baseline", "baseline-graph", "file:x", "mcp")
    kinds = ("model", "agent", "person", "person", "house", "baseline", "baseline", "person", "agent")
    assert tuple(map(kind_of, words)) == kinds


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


def test_players_are_those_with_kernels_of_their_own(store: Store) -> None:
    for number, (player, kernel) in enumerate(
        [("you", "kernel.py"), ("you", BASELINE), ("baseline", BASELINE), ("model:b", "b-1.py"), ("house", "house")]
    ):
        store.record(entry(number, player=player, kernel=kernel))
    assert definitions.order_of(store.players()) == ["you", "house", "model:b"]


def test_published_totals_are_printed_and_rows_nearly_add() -> None:
    published = definitions.read_published()
    assert set(published.problems) == set(load_catalogue().categories)
    totals = {model.name: published.tally(model, "") for model in published.model}
    assert totals == {
        "GPT-5.5": (36, 27, 87),
        "Claude Opus 4.7": (31, 20, 87),
        "Gemini 3 Pro": (30, 19, 87),
        "GLM-5.1": (7, 3, 87),
        "DeepSeek V4 Pro": (3, 1, 87),
    }
    for model in published.model:
        assert sum(model.solved) == model.printed["solved"]
        assert abs(sum(model.faster) - model.printed["faster"]) <= 3
        assert len(model.solved) == len(model.faster) == len(published.problems)
        assert set(model.curve) - {"0"} <= {f"{p:g}" for p in definitions.FACTORS}
        assert all(fast <= right for fast, right in zip(model.faster, model.solved, strict=True))
    assert published.tally(published.model[0], "context") == (8, 6, 12)
