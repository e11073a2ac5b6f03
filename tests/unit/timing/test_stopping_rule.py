"""The stopping rule: it ends on precise intervals and clear differences, and takes more time if nothing can be claimed."""

import pytest

from sandbox.protocol.events import Interval
from sandbox.timing.interval import FEWEST
from sandbox.timing.stopping_rule import LOOK_EVERY, StoppingRule, is_enough

NARROW = Interval(1.0, 0.985, 1.015)
WIDE = Interval(1.0, 0.8, 1.25)
CLEAR = Interval(2.0, 1.7, 2.35)


def ends(elapsed, pairs=FEWEST, call=WIDE, device=None, seconds=2.5):
    return StoppingRule(seconds).ends(elapsed, 10, pairs, lambda: (call, device))


def test_precise_or_clear_interval_ends_it_any_time():
    assert ends(0.2, call=NARROW)
    assert ends(0.2, call=CLEAR)
    assert not ends(0.2, call=WIDE)
    assert not ends(0.2, call=CLEAR, pairs=FEWEST - 1)


def test_its_time_is_the_measuring_time():
    assert not ends(2.4)
    assert ends(2.5)
    assert ends(0.5, seconds=0.5)


def test_what_claims_nothing_gets_four_times_as_long():
    assert not ends(9.9, call=None)
    assert not ends(9.9, pairs=FEWEST - 1)
    assert ends(10.0, call=None)


def test_rule_is_not_checked_after_every_round():
    looks = []
    rule = StoppingRule(2.5)
    for elapsed in (0.2, 0.2 + LOOK_EVERY / 2, 0.2 + LOOK_EVERY):
        rule.ends(elapsed, 1, FEWEST, lambda: looks.append(1) or (WIDE, None))
    assert len(looks) == 2


def test_number_of_rounds_is_kept_whatever_time():
    rule = StoppingRule(1.0, rounds=5)
    assert not rule.ends(60.0, 4, 99, lambda: (NARROW, None))
    assert rule.ends(0.1, 5, 1, lambda: (None, None))
    assert rule.expected(0.1, 2) == 5


def test_the_expected_rounds_follow_the_pace():
    rule = StoppingRule(2.5)
    assert rule.expected(0.0, 0) == 1
    assert rule.expected(0.25, 10) == 100


@pytest.mark.parametrize(
    ("call", "device", "enough"),
    [
        (NARROW, NARROW, True),
        (CLEAR, NARROW, True),
        (NARROW, CLEAR, True),
        (NARROW, WIDE, False),
        (WIDE, NARROW, False),
        (NARROW, None, True),
        (None, NARROW, False),
        (None, None, False),
    ],
)
def test_every_clock_that_claims_something_must_be_settled(call, device, enough):
    assert is_enough(call, device) is enough
