"""The stopping rule: it checks at few fixed times, ends on narrow intervals, and takes more time under noise."""

import pytest

from sandbox.protocol.events import Interval
from sandbox.timing.interval import FEWEST
from sandbox.timing.stopping_rule import FEW_PAIRS, LEAST_PAIRS, Decision, StoppingRule, is_enough

NARROW = Interval(1.0, 0.97, 1.03)
WIDE = Interval(1.0, 0.8, 1.25)
CLEAR = Interval(2.0, 1.7, 2.35)
MANY = LEAST_PAIRS


def decide(stopping_rule, elapsed, rounds=10, pairs=MANY, call=WIDE, device=None):
    return stopping_rule.decide(elapsed, rounds, pairs, lambda: (call, device))


def test_it_only_looks_when_a_look_is_due():
    looked = []
    stopping_rule = StoppingRule(budget_s=1.0)
    for tenth in range(1, 41):
        stopping_rule.decide(tenth / 10, tenth, MANY, lambda tenth=tenth: looked.append(tenth) or (WIDE, None))
    assert looked == [5, 10, 20, 40]


def test_a_narrow_interval_or_a_clear_difference_settles_it():
    assert decide(StoppingRule(1.0), 0.6, call=NARROW) is Decision.ENOUGH
    assert decide(StoppingRule(1.0), 0.6, call=CLEAR) is Decision.ENOUGH
    assert decide(StoppingRule(1.0), 0.6, call=WIDE) is Decision.GO_ON
    assert decide(StoppingRule(1.0), 0.4, call=NARROW) is Decision.GO_ON


def test_noise_gets_four_budgets():
    stopping_rule = StoppingRule(1.0)
    assert decide(stopping_rule, 3.9) is Decision.GO_ON
    assert decide(stopping_rule, 4.0) is Decision.OUT_OF_TIME


def test_slow_calls_get_more_time_for_the_fewest_pairs():
    stopping_rule = StoppingRule(1.0)
    assert decide(stopping_rule, 4.5, pairs=3) is Decision.GO_ON
    assert decide(stopping_rule, 5.0, pairs=MANY, call=NARROW) is Decision.ENOUGH
    assert decide(StoppingRule(1.0), 8.0, pairs=FEWEST) is Decision.OUT_OF_TIME


def test_pairs_that_allow_no_claim_get_still_more_time():
    assert decide(StoppingRule(1.0), 15.9, pairs=FEWEST - 1) is Decision.GO_ON
    assert decide(StoppingRule(1.0), 16.0, pairs=FEWEST - 1) is Decision.OUT_OF_TIME


def test_slow_calls_end_with_few_pairs_if_these_are_clear():
    stopping_rule = StoppingRule(1.0)
    assert decide(stopping_rule, 3.9, pairs=FEW_PAIRS, call=CLEAR) is Decision.GO_ON
    assert decide(stopping_rule, 4.1, pairs=FEW_PAIRS - 1, call=CLEAR) is Decision.GO_ON
    assert decide(stopping_rule, 4.5, pairs=FEW_PAIRS, call=CLEAR) is Decision.ENOUGH
    stopping_rule = StoppingRule(1.0)
    assert decide(stopping_rule, 4.5, pairs=FEW_PAIRS, call=WIDE) is Decision.GO_ON
    assert decide(stopping_rule, 4.7, pairs=FEW_PAIRS + 1, call=CLEAR) is Decision.GO_ON  # checked once


def test_a_number_of_rounds_is_kept_whatever_the_time():
    stopping_rule = StoppingRule(1.0, rounds=5)
    assert decide(stopping_rule, 60.0, rounds=4, call=NARROW) is Decision.GO_ON
    assert decide(stopping_rule, 0.1, rounds=5) is Decision.ENOUGH
    assert stopping_rule.expected(0.1, 2) == 5


def test_the_expected_rounds_follow_the_pace():
    stopping_rule = StoppingRule(1.0)
    assert stopping_rule.expected(0.0, 0) == 1
    assert stopping_rule.expected(0.25, 10) == 20
    decide(stopping_rule, 0.5)
    assert stopping_rule.expected(0.5, 20) == 40


@pytest.mark.parametrize(
    ("call", "device", "settled"),
    [
        (NARROW, NARROW, True),
        (Interval(1.0, 0.91, 1.1), NARROW, True),
        (Interval(1.0, 0.85, 1.17), NARROW, False),
        (NARROW, WIDE, False),
        (None, NARROW, True),
        (None, None, False),
    ],
)
def test_calls_may_be_wider_where_device_time_is_settled(call, device, settled):
    assert is_enough(call, device) is settled
