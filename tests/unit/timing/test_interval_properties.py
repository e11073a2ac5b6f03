"""Properties of every interval: units and the order of the sides do not matter, and its ends are in order.

Where pairs are set aside, the sides are not treated alike, so these pairs have no slow batch.
"""

import math
from typing import Any

import msgspec
import pytest
from fixed_examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from sandbox.protocol.events import Interval
from sandbox.timing.interval import FEWEST, Pair, half_width, turns_of
from sandbox.timing.interval import speedup as estimate
from sandbox.timing.random_effects import ORDER_FROM

HISTORIES = st.sampled_from([(), tuple(-0.5 * place for place in range(36))])
"""No history, and one that says worlds differ little."""


def speedup(*args: Any, **options: Any) -> Interval:
    """Returns the interval of pairs that claim something; other examples are left out."""
    found = estimate(*args, **options)[0]
    assume(found is not None)
    return found


def made(reference: st.SearchStrategy[int], least: int, most: int) -> st.SearchStrategy[list[Pair]]:
    """Returns a strategy for noisy pairs. In some of the examples, two pairs share each batch of the contender."""

    @st.composite
    def pairs(draw: st.DrawFn) -> list[Pair]:
        jitter = draw(st.sampled_from([0.0, 1e-3, 0.05]))
        logs = st.floats(-1, 1).map(lambda log: 100 * math.exp(jitter * log))
        shared = draw(st.booleans())
        count = draw(st.integers(least, most))
        contender = [draw(logs) for _ in range(count)]
        return [
            Pair(
                reference=draw(reference),
                baseline_us=draw(logs),
                contender_us=contender[place // 2 if shared else place],
                baseline_first=draw(st.booleans()),
                turn=place // 2 if shared else None,
            )
            for place in range(count)
        ]

    return pairs()


ENOUGH = made(st.integers(0, 3), FEWEST, 20).filter(lambda pairs: turns_of(pairs) >= FEWEST)


def scaled(pairs: list[Pair], baseline: float, contender: float) -> list[Pair]:
    return [
        msgspec.structs.replace(
            pair, baseline_us=pair.baseline_us * baseline, contender_us=pair.contender_us * contender
        )
        for pair in pairs
    ]


def swapped(pairs: list[Pair]) -> list[Pair]:
    return [
        msgspec.structs.replace(
            pair, baseline_us=pair.contender_us, contender_us=pair.baseline_us, baseline_first=not pair.baseline_first
        )
        for pair in pairs
    ]


def close(interval: Interval) -> list[object]:
    """Returns an interval's logarithms, for approximate comparison."""
    return [pytest.approx(math.log(end), abs=1e-5) for end in (interval.median, interval.low, interval.high)]


def logs(interval: Interval) -> list[float]:
    return [math.log(end) for end in (interval.median, interval.low, interval.high)]


@examples(40)
@given(ENOUGH, HISTORIES)
def test_swapping_the_sides_inverts_it(pairs: list[Pair], history: tuple[float, ...]) -> None:
    found, inverse = speedup(pairs, history), speedup(swapped(pairs), history)
    assert logs(found) == close(Interval(1 / inverse.median, 1 / inverse.high, 1 / inverse.low))


@examples(40)
@given(ENOUGH, HISTORIES, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_rescaling_a_side_rescales_it(pairs: list[Pair], history: tuple[float, ...], base: float, mine: float) -> None:
    was, factor = speedup(pairs, history), base / mine
    assert logs(speedup(scaled(pairs, base, mine), history)) == close(
        Interval(was.median * factor, was.low * factor, was.high * factor)
    )


@examples(40)
@given(made(st.just(0), ORDER_FROM, 20), HISTORIES, st.integers(2, 4))
def test_more_pairs_beside_one_reference_never_widen_interval(
    pairs: list[Pair], history: tuple[float, ...], times: int
) -> None:
    """With several references it may: more pairs show that they differ, so the contender's offset may be larger."""
    assume(turns_of(pairs) >= FEWEST)
    more = [
        msgspec.structs.replace(pair, turn=None if pair.turn is None else pair.turn + 100 * copy)
        for copy in range(times)
        for pair in pairs
    ]
    assert half_width(speedup(more, history)) <= half_width(speedup(pairs, history)) * (1 + 1e-6)


TIMES = st.one_of(
    st.floats(0, 1e308), st.sampled_from([5e-324, 1e-300, 1.0, 1.0 + 2**-52, 1e308, math.inf, math.nan, -1.0])
)
WILD = st.lists(
    st.builds(
        Pair,
        reference=st.integers(0, 3),
        baseline_us=TIMES,
        contender_us=TIMES,
        baseline_first=st.booleans(),
        turn=st.one_of(st.none(), st.integers(0, 9)),
    ),
    max_size=20,
)


@examples(80)
@given(WILD, HISTORIES, st.sampled_from([0.0, 0.01, 1e3]))
def test_whatever_times_it_is_finite_and_in_order(pairs: list[Pair], history: tuple[float, ...], error: float) -> None:
    found = estimate(pairs, history, error)
    assert found == estimate(pairs, history, error)
    if found[0] is None:
        assert found[1]
    else:
        assert 0 < found[0].low <= found[0].median <= found[0].high < math.inf
