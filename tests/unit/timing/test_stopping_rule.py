"""The stopping rule: looks at few times, ends when the clocks tell enough, uses the time where noise asks for it."""

import pytest

from sandbox.protocol.events import Interval
from sandbox.timing.stopping_rule import LEAST_PAIRS, Decision, Settling, is_settled

NARROW = Interval(1.0, 0.97, 1.03)
WIDE = Interval(1.0, 0.8, 1.25)
CLEAR = Interval(2.0, 1.7, 2.35)
MANY = LEAST_PAIRS


def decide(settling, elapsed, rounds=10, pairs=MANY, call=WIDE, device=None):
    return settling.decide(elapsed, rounds, pairs, lambda: (call, device))


def test_it_only_looks_when_a_look_is_due():
    looked = []
    settling = Settling(budget_s=1.0)
    for tenth in range(1, 41):
        settling.decide(tenth / 10, tenth, MANY, lambda tenth=tenth: looked.append(tenth) or (WIDE, None))
    assert looked == [5, 10, 20, 40]


def test_a_narrow_interval_or_a_clear_difference_settles_it():
    assert decide(Settling(1.0), 0.6, call=NARROW) is Decision.SETTLED
    assert decide(Settling(1.0), 0.6, call=CLEAR) is Decision.SETTLED
    assert decide(Settling(1.0), 0.6, call=WIDE) is Decision.GO_ON
    assert decide(Settling(1.0), 0.4, call=NARROW) is Decision.GO_ON


def test_noise_gets_four_budgets():
    settling = Settling(1.0)
    assert decide(settling, 3.9) is Decision.GO_ON
    assert decide(settling, 4.0) is Decision.OUT_OF_TIME


def test_slow_calls_get_more_time_for_the_fewest_pairs():
    settling = Settling(1.0)
    assert decide(settling, 4.5, pairs=3) is Decision.GO_ON
    assert decide(settling, 5.0, pairs=MANY, call=NARROW) is Decision.SETTLED
    assert decide(Settling(1.0), 8.0, pairs=3) is Decision.OUT_OF_TIME


def test_a_number_of_rounds_is_kept_whatever_the_time():
    settling = Settling(1.0, rounds=5)
    assert decide(settling, 60.0, rounds=4, call=NARROW) is Decision.GO_ON
    assert decide(settling, 0.1, rounds=5) is Decision.SETTLED
    assert settling.expected(0.1, 2) == 5


def test_measuring_on_looks_again_later():
    settling = Settling(1.0)
    assert decide(settling, 4.0) is Decision.OUT_OF_TIME
    settling.extend(4.0, 4.0)
    assert decide(settling, 7.9, call=NARROW) is Decision.GO_ON
    assert decide(settling, 8.0) is Decision.OUT_OF_TIME


def test_the_expected_rounds_follow_the_pace():
    settling = Settling(1.0)
    assert settling.expected(0.0, 0) == 1
    assert settling.expected(0.25, 10) == 20
    decide(settling, 0.5)
    assert settling.expected(0.5, 20) == 40


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
    assert is_settled(call, device) is settled
