"""Lengths of batches, and their number per round."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """The sizes of a round on one kind of device."""

    batch_s: float
    """Target length of a batch on the faster side, in seconds."""
    slower_s: float
    """Longest batch on the slower side, in seconds."""
    calls: int
    """Most calls of a batch."""
    slots: int
    """Iterations that an arena holds, if memory allows."""
    pairs: int
    """Most pairs of batches in a round. Their inputs are drawn together."""
    gated_pairs: int
    """Pairs of a gated round, which has its own inputs; 0 without a gate."""
    references: int
    """Reference worlds. They show how much worlds with identical code differ."""
    problems: int = 16
    """Problems that the oracle world or a reference world opens before a new one replaces it. After 60 to 70 problems, worlds
    differ from fresh ones: identical code was 0.71 to 0.86 times as fast."""

    def references_for(self, rounds: int | None) -> int:
        """Reference worlds of a run. A small fixed number of rounds needs fewer. rounds: None if adaptive."""
        return self.references if rounds is None else min(self.references, 1 + rounds // 4)


def calls_for(pace: Pace, baseline_s: float, contender_s: float, slots: int) -> int:
    """Calls of a batch, at least one.

    baseline_s, contender_s: seconds per call on either side. slots: of an arena.
    """
    wanted = int(pace.batch_s / max(min(baseline_s, contender_s), 1e-7)) + 1
    bearable = int(max(pace.slower_s, 2 * pace.batch_s) / max(baseline_s, contender_s, 1e-7))
    return max(1, min(wanted, bearable, pace.calls, slots // 2))


def pairs_for(pace: Pace, calls: int, slots: int) -> int:
    """Pairs of a round that fit into the slots of an arena."""
    return max(1, min(pace.pairs, slots // calls))


WARM_SECONDS, MOST_WARM = 0.3, 50
"""Seconds and most calls of the untimed calls in a new world."""


def warm_calls(call_s: float) -> int:
    """Number of untimed calls in a new world, at least 1. call_s: seconds per call."""
    return max(1, min(MOST_WARM, int(WARM_SECONDS / max(call_s, 1e-7))))


DISTINCT_SECONDS, MOST_DISTINCT = 2.5, 400
"""The same for calls with a new input each, if shapes vary between calls. A call of problem 32 took 3.5 ms at first and 1.1 ms
after 400 calls on two H100, and 6 ms and 1.8 ms on CPU ranks. 0.8 s were enough for 130 calls only."""


def distinct_calls(call_s: float) -> int:
    """Number of untimed calls with a new input each, at least 1. call_s: seconds per call."""
    return max(1, min(MOST_DISTINCT, int(DISTINCT_SECONDS / max(call_s, 1e-7))))
