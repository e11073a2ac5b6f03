"""The sentence on both clocks: end-to-end time first, device time if that is too noisy, with the numbers."""

import pytest

from sandbox.protocol.events import Interval
from sandbox.timing.conclusion import Unconfirmed, conclude, ends
from sandbox.timing.interval import detectable_percent, outcome

EVEN = Interval(1.0, 0.98, 1.02)
FASTER = Interval(1.31, 1.2, 1.43)
SLOWER = Interval(0.8, 0.75, 0.85)
NOISY = Interval(1.0, 0.6, 1.7)


@pytest.mark.parametrize(
    ("call", "device", "sentence"),
    [
        (NOISY, EVEN, "same speed by device time 1.00× [0.98, 1.02], detects 3 %; end-to-end time too noisy"),
        (FASTER, Interval(1.1, 1.09, 1.12), "1.31× faster end-to-end [1.20, 1.43]; device time 1.10× [1.09, 1.12]"),
        (
            EVEN,
            FASTER,
            "same speed end-to-end 1.00× [0.98, 1.02], detects 3 %; device time 1.31× [1.20, 1.43] (faster)",
        ),
        (
            Interval(0.95, 0.895, 1.004),
            Interval(0.95, 0.927, 0.973),
            "0.95× slower by device time [0.93, 0.97]; end-to-end no difference shown: 0.95× [0.895, 1.004], detects 9 %",
        ),
        (
            Interval(0.99, 0.94, 1.04),  # leans too little to the same side
            Interval(0.98, 0.965, 0.995),
            "same speed end-to-end 0.99× [0.94, 1.04], detects 8 %; device time 0.98× [0.96, 0.99] (slower)",
        ),
        (Interval(1.02, 1.001, 1.04), None, "1.02× faster end-to-end [1.001, 1.040]"),
        (SLOWER, NOISY, "0.80× slower end-to-end [0.75, 0.85]; device time too noisy"),
        (Interval(0.0042, 0.00398, 0.045), None, "0.0042× slower end-to-end [0.004, 0.04]"),
        (Interval(0.0012, 0.0004, 0.0045), None, "0.0012× slower end-to-end [<0.001, 0.004]"),
        (NOISY, None, "too noisy: only a difference above 2.2× would show"),
        (Interval(1.0, 0.01, 100.0), None, "too noisy: even a difference of 10× may not show"),
    ],
)
def test_the_sentence_has_the_numbers(call, device, sentence):
    assert conclude(call, device).told == sentence


@pytest.mark.parametrize(
    ("call", "device"),
    [
        (Interval(1.39, 0.99, 1.94), Interval(0.42, 0.18, 0.98)),
        (Interval(0.42, 0.18, 0.98), Interval(1.3, 0.99, 1.7)),
        (FASTER, SLOWER),
        (SLOWER, FASTER),
    ],
)
def test_disagreeing_clocks_are_told_and_claim_nothing(call, device):
    told = conclude(call, device)
    assert told.outcome == "too noisy"
    assert told.told.startswith("no claim, the clocks disagree: end-to-end ")
    assert all(f"{each.median:.2f}× {ends(each)}" in told.told for each in (call, device))


def test_what_claims_nothing_says_why():
    told = conclude(None, None, why="4 pairs of batches, 6 are needed")
    assert (told.outcome, told.told) == ("too noisy", "no claim: 4 pairs of batches, 6 are needed")
    assert conclude(None, FASTER, why="4 pairs").told.endswith("; end-to-end no claim: 4 pairs")


def test_single_calls_contradict_only_where_they_can_tell():
    many = Interval(9.0, 8.5, 9.5)
    assert "which single calls contradict" in conclude(EVEN, None, unconfirmed=Unconfirmed(many)).told
    noisy = conclude(Interval(1.8, 0.6, 4.4), None, unconfirmed=Unconfirmed(many)).told
    assert noisy.endswith("batches of many calls gave 9.00× [8.50, 9.50], which single calls are too noisy to confirm.")


def test_baseline_slower_in_batches_tells_of_other_work():
    slowed = Unconfirmed(Interval(35.8, 23.0, 55.7), 2100.0, 410.0)
    told = conclude(Interval(1.4, 1.3, 1.48), None, unconfirmed=slowed).told
    assert told.endswith("The baseline took 2100 µs a call there, 410 µs alone: other work slowed the batches.")
    assert "inputs of later calls" not in told


def test_advice_is_given_where_a_clock_cannot_tell():
    assert conclude(EVEN, EVEN).advice == ""
    assert conclude(NOISY, EVEN, ranks=4, cores=2).advice == ("more rounds, fewer ranks than cores, a quieter machine")
    assert "ranks" not in conclude(NOISY, None, ranks=2, cores=8).advice


def test_noisy_is_what_might_miss_half():
    assert outcome(Interval(1.0, 0.79, 1.27)) == "even"
    assert detectable_percent(Interval(1.0, 0.79, 1.27)) < 50 < detectable_percent(Interval(1.0, 0.76, 1.31))
    assert outcome(Interval(1.0, 0.76, 1.31)) == "too noisy"
