"""Lengths of batches and their number in a round, by kind of device."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """The sizes of a round."""

    batch_s: float
    """How long a batch should last on the quicker side."""
    long_s: float
    """The same where the host sets the pace: a world that has rested takes a millisecond to be quick again."""
    slower_s: float
    """How long a batch may last on the slower side for the quicker one's sake."""
    calls: int
    """Calls of a batch at the most."""
    slots: int
    """Iterations that an arena should hold."""
    pairs: int
    """Pairs of batches in a round at the most; their inputs are drawn together."""
    gated_pairs: int
    """Pairs of a round that are run behind the starting gate, on inputs of their own; 0 where there is no gate."""
    references: int
    """Worlds that run the baseline: what identical code differs by is known from them."""

    def references_for(self, rounds: int | None) -> int:
        """Fewer worlds run the baseline where the number of rounds is fixed and small."""
        return self.references if rounds is None else min(self.references, 1 + rounds // 4)


def calls_for(pace: Pace, batch_s: float, base_s: float, mine_s: float, slots: int) -> int:
    """Calls of a batch, at least one.

    batch_s: how long it should last; base_s, mine_s: seconds a call on either side; slots: that an arena has.
    """
    wanted = int(batch_s / max(min(base_s, mine_s), 1e-7)) + 1
    bearable = int(max(pace.slower_s, 2 * batch_s) / max(base_s, mine_s, 1e-7))
    return max(1, min(wanted, bearable, pace.calls, slots // 2))


def pairs_for(pace: Pace, calls: int, slots: int) -> int:
    """Pairs of a round: as many as an arena has slots for."""
    return max(1, min(pace.pairs, slots // calls))


WARM_SECONDS, MOST_WARM = 0.3, 50
"""How long a fresh world makes untimed calls before anything is timed, and how many at the most."""


def warm_calls(call_s: float) -> int:
    """Untimed calls of a fresh world, at least one. call_s: seconds of one."""
    return max(1, min(MOST_WARM, int(WARM_SECONDS / max(call_s, 1e-7))))


DISTINCT_SECONDS, MOST_DISTINCT = 2.5, 400
"""The same for calls on as many inputs, where shapes differ from call to call. On two H100 the batches of problem 32 took 3.5 ms
a call at first and 1.1 after 400 calls; the half of that was gone after 50. On CPU ranks they take 6 ms at first and 1.8 after
400 calls, and the first 6 ms are what is known of a call: in 0.8 s there was time for 130 calls only."""


def distinct_calls(call_s: float) -> int:
    """Untimed calls on as many inputs, at least one. call_s: seconds of one."""
    return max(1, min(MOST_DISTINCT, int(DISTINCT_SECONDS / max(call_s, 1e-7))))
