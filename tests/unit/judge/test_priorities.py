"""Priorities of a kernel's processes, on simulated worlds: which changes are allowed during timing."""

from collections.abc import Callable

import pytest
from made_kernels import MadeKernel
from made_machine import MadeCpu, MadeMachine

from sandbox.machine.devices import KINDS
from sandbox.machine.scheduling import Share
from sandbox.protocol.verdict import Verdict
from sandbox.timing.disturbance import MOST_SESSIONS
from sandbox.timing.rounds import Rounds
from sandbox.worlds.exchange import CONTENDER, Failed

USUAL = Share("/autogroup-7 nice 10", 3, 0)
HELPER = 77


def rounds_where(share_of: Callable[[Rounds, int], Share], **kernel: object) -> tuple[Rounds, MadeCpu]:
    """Returns rounds on a machine where share_of(rounds, pid) is each process's share of the cores."""
    machine = MadeMachine(kernel=MadeKernel(**kernel))  # type: ignore[arg-type]
    rounds = machine.rounds(machine.run(rounds=12))
    kind = KINDS["made-cpu"]
    assert isinstance(kind, MadeCpu)
    kind.share_of = lambda pid: share_of(rounds, pid)
    return rounds, kind


@pytest.mark.parametrize(
    "changed", [USUAL._replace(session="/autogroup-8 nice 0"), USUAL._replace(policy=0), USUAL._replace(nice=-5)]
)
def test_rank_whose_priority_changes_during_timing_disturbs_baseline(changed: Share) -> None:
    rounds, _ = rounds_where(
        lambda rounds, pid: (
            changed
            if rounds.turns.rounds and pid == rounds.turns.contender_side.worlds[0].processes.rank_pids[1]
            else USUAL
        )
    )
    with pytest.raises(Failed) as failed:
        rounds.measure()
    assert failed.value.verdict is Verdict.BASELINE_DISTURBED
    assert failed.value.side == CONTENDER
    assert "changed the priority of its process" in failed.value.failure.message


def test_unchanged_priorities_and_ended_processes_are_no_fault() -> None:
    other = Share("/autogroup-8 nice 19")
    rounds, kind = rounds_where(
        lambda rounds, pid: USUAL if pid != HELPER else Share() if rounds.turns.rounds else other, helpers=[HELPER]
    )
    rounds.measure()
    assert rounds.turns.rounds == 12
    assert kind.settled.count(HELPER) == 1


def test_helper_in_session_of_world_stays_unchanged() -> None:
    rounds, kind = rounds_where(lambda rounds, pid: USUAL, helpers=[HELPER])
    rounds.measure()
    assert HELPER not in kind.settled


def test_ranks_with_own_sessions_outweigh_the_baseline() -> None:
    rounds, _ = rounds_where(lambda rounds, pid: Share(f"/autogroup-{pid} nice 10"))
    with pytest.raises(Failed) as failed:
        rounds.measure()
    assert failed.value.verdict is Verdict.BASELINE_DISTURBED
    assert rounds.turns.rounds == 0


@pytest.mark.parametrize("many", [MOST_SESSIONS, MOST_SESSIONS + 1])
def test_few_sessions_of_helpers_get_lowest_priority(many: int) -> None:
    helpers: list[int] = []

    def share_of(rounds: Rounds, pid: int) -> Share:
        helpers[:] = range(HELPER, HELPER + min(rounds.turns.rounds, many))
        return Share(f"/autogroup-{pid} nice 0") if pid in helpers else USUAL

    rounds, kind = rounds_where(share_of, helpers=helpers)
    if many > MOST_SESSIONS:
        with pytest.raises(Failed) as failed:
            rounds.measure()
        assert "sessions during timing" in failed.value.failure.message
    else:
        rounds.measure()
    assert set(range(HELPER, HELPER + many)) <= set(kind.settled)
