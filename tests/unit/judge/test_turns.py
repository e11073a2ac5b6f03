"""Who is blamed for work out of turn, on simulated worlds: a kernel alone and against another kernel."""

import itertools
from types import SimpleNamespace

import pytest
from made_kernels import MadeKernel, MadeOracle, noisy, wrong
from made_machine import MadeMachine

from sandbox.machine import processes
from sandbox.protocol.messages import CheckPoison, ChooseBatch, CompareOutputs, Draw, Reveal, TakeOutputs
from sandbox.protocol.verdict import Verdict
from sandbox.timing.clocks import FOREIGN_US
from sandbox.timing.roofline import Peaks
from sandbox.timing.rounds import Rounds
from sandbox.timing.turns import LATE_SECONDS, MEMORY_SECONDS
from sandbox.worlds.exchange import CONTENDER, REFERENCE, RIVAL, Failed
from sandbox.worlds.failures import HarnessFailed, WorldFailed
from sandbox.worlds.world import World


def failing(rounds: Rounds) -> Failed:
    with pytest.raises(Failed) as failed:
        rounds.measure()
    return failed.value


@pytest.mark.parametrize(
    ("thief", "rival", "side"),
    [("kernel", "", CONTENDER), ("kernel", "rival.py", CONTENDER), ("rival", "rival.py", RIVAL)],
)
def test_who_computes_out_of_turn_is_blamed(thief: str, rival: str, side: int) -> None:
    machine = MadeMachine(**{thief: MadeKernel(cpu_share=0.5)})
    failed = failing(machine.rounds(machine.run(rounds=12), rival=rival))
    assert (failed.verdict, failed.side) == (Verdict.BASELINE_DISTURBED, side)
    assert "s of CPU time while they were stopped" in failed.failure.message
    assert f"while the {'other kernel' if rival else 'baseline'} was timed" in failed.failure.message


def test_what_stopping_itself_takes_is_no_disturbance() -> None:
    machine = MadeMachine(kernel=MadeKernel(cpu_share=0.01), rival=MadeKernel(cpu_share=0.01))
    rounds = machine.rounds(machine.run(rounds=12), rival="rival.py")
    rounds.measure()
    first, second = (side.observations.stopped_activity for side in rounds.turns.kernels)
    assert first.count > 36  # in the other batches of every pair
    assert second.count == pytest.approx(first.count, rel=0.1)
    assert first.disturbed == second.disturbed == 0


@pytest.mark.parametrize(("late_cpu_s", "late"), [(0.0003, False), (0.0005, True)])  # of two ranks
def test_work_after_done_is_late(late_cpu_s: float, late: bool) -> None:
    rounds = MadeMachine(kernel=MadeKernel(late_cpu_s=late_cpu_s)).rounds()
    if late:
        failed = failing(rounds)
        assert failed.verdict is Verdict.LATE_OUTPUT
        assert "s of CPU time after it had ended its batch" in failed.failure.message
    else:
        rounds.measure()
        exchange = rounds.turns.contender_side.exchange
        exchange.used_since_done = lambda: late_cpu_s
        rounds.turns.continue_only(exchange.contender)
        assert exchange.used_since_done is None  # before its ranks go on


def test_a_quarter_of_uncounted_pairs_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, seen = MadeMachine().rounds().turns, []
    monkeypatch.setattr(turns, "compare", lambda slots, timed: seen.append([*timed]))
    for drawn in (0.24, 0.26):
        monkeypatch.setattr(turns, "random", SimpleNamespace(random=lambda drawn=drawn: drawn))
        turns.compare_seldom([1], range(2))
    assert seen == [[0, 1], []]


def test_kernel_that_cannot_be_stopped_is_not_timed() -> None:
    failed = failing(MadeMachine(kernel=MadeKernel(unstoppable="it keeps 999 processes")).rounds())
    assert failed.verdict is Verdict.BASELINE_DISTURBED
    assert "it keeps 999 processes" in failed.failure.message


def test_a_lone_call_has_a_first_calls_limit() -> None:
    turns = MadeMachine().rounds().turns
    assert turns.batch_limit(1) == turns.limits.first_call > turns.batch_limit(2)


def test_kernel_that_is_slow_outside_clock_times_out() -> None:
    failed = failing(MadeMachine(kernel=MadeKernel(arm_s=5.0)).rounds())
    assert failed.verdict is Verdict.TIMEOUT
    assert "untimed calls and the assembly of arguments took" in failed.failure.message
    assert failed.side == CONTENDER


@pytest.mark.parametrize(
    ("outside", "without_core", "excused"), [(0.9, 0.9, True), (0.9, 0.1, False), (0.3, 0.9, False)]
)
def test_untimed_calls_may_wait_on_a_busy_machine(
    outside: float, without_core: float, excused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = MadeMachine(kernel=MadeKernel(arm_s=5.0, without_core=without_core))
    machine.outside_share = outside
    monkeypatch.setattr(processes, "outside_seconds", machine.outside)
    with pytest.raises(HarnessFailed if excused else Failed):
        machine.rounds().measure()


@pytest.mark.parametrize(
    ("outside", "without_core", "device", "claims"),
    [
        (0.9, 1.0, "made-cpu", False),
        (0.9, 0.0, "made-cpu", True),
        (0.4, 1.0, "made-cpu", False),
        (0.2, 1.0, "made-cpu", True),
        (0.9, 1.0, "made-gpu", True),
    ],
)
def test_kernel_waiting_for_cores_is_not_told_fast(
    outside: float, without_core: float, device: str, claims: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = MadeMachine(device, MadeKernel(noisy(50.0), without_core=without_core))
    machine.outside_share = outside
    monkeypatch.setattr(processes, "outside_seconds", machine.outside)
    rounds = machine.rounds(machine.run(rounds=60))
    rounds.measure()
    speed = rounds.call.speed
    assert speed is not None
    assert speed.low < 2.1
    assert (speed.high < 3.0) == claims  # there is no upper end


@pytest.mark.parametrize(("without_core", "share"), [(1.0, 0.4), (0.1, 0.2)])  # of each of two ranks
def test_waits_for_own_threads_do_not_count(without_core: float, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MadeMachine(kernel=MadeKernel(noisy(50.0), without_core=without_core))
    machine.outside_share = 0.9
    monkeypatch.setattr(processes, "outside_seconds", machine.outside)
    monkeypatch.setattr(processes, "cpu_seconds", lambda pids: 1.8 * len(pids) * machine.clock.monotonic())
    rounds = machine.rounds(machine.run(rounds=60))
    rounds.measure()
    assert rounds.turns.waited == (0.0, pytest.approx(share, rel=0.1))  # they used 0.9 of their two cores each


def test_outputs_are_taken_before_the_kernel_runs_again() -> None:
    machine = MadeMachine()
    rounds = machine.rounds()
    stopped: list[bool] = []
    orders = machine.ranks(machine.started["baseline"][0]).orders
    take = rounds.turns.exchange.take

    def taking(first: int, count: int) -> None:
        stopped.append(rounds.turns.contender_side.worlds[0].processes.paused)
        take(first, count)

    rounds.turns.exchange.take = taking  # type: ignore[method-assign]
    rounds.measure()
    taken: set[int] = set()
    for order in orders:
        if isinstance(order, Draw):
            taken = set()
        elif isinstance(order, TakeOutputs):
            assert order.side == CONTENDER  # the baseline's outputs stay
            taken |= set(range(order.first, order.first + order.count))
        elif isinstance(order, CompareOutputs):
            assert taken >= set(order.slots)
    assert len(stopped) > 6
    assert all(stopped)


def test_a_stopped_kernel_is_unheard_until_its_turn() -> None:
    machine = MadeMachine()
    rounds = machine.rounds(rival="rival.py")
    heard: dict[str, list[tuple[bool, ...]]] = {"baseline": [], "kernel": []}
    kernel, rival = (machine.ranks(side.worlds[0]) for side in rounds.turns.kernels)
    baseline = machine.ranks(machine.started["reference"][0])
    baseline.on_go = lambda: heard["baseline"].append((kernel.heard, rival.heard))
    kernel.on_go = lambda: heard["kernel"].append((kernel.heard, rival.heard))
    rounds.measure()
    assert set(heard["baseline"]) == {(False, False)}
    assert set(heard["kernel"]) == {(True, False)}


@pytest.mark.parametrize("device", ["made-cpu", "made-gpu"])
def test_faster_than_machine_can_move_bytes_is_impossible(device: str) -> None:
    machine = MadeMachine(device, MadeKernel(noisy(50.0)))
    # 65536 bytes over 8 times the measured link: 82 us
    failed = failing(machine.rounds(peaks=Peaks(1e12, 1e12, 1e8, device)))
    assert failed.verdict is Verdict.IMPOSSIBLE_SPEED
    assert "but link alone needs 81.920 us" in failed.failure.message


def test_kept_result_beats_machine_and_no_record() -> None:
    machine = MadeMachine("made-gpu", MadeKernel(noop_us=noisy(0.01)), rival=MadeKernel(noop_us=noisy(0.01)))
    rounds = machine.rounds(rival="rival.py", peaks=Peaks(1e12, 1e12, 1e8, "made-gpu"))
    rounds.measure()
    assert [side.observations.quickest for side in rounds.turns.kernels if side.observations] == pytest.approx(
        [100.0] * 2
    )


def test_late_writer_is_seen_when_no_kernel_rests() -> None:
    machine = MadeMachine()
    rounds = machine.rounds(rival="rival.py")
    running, continued = [], [0.0]
    both = [side.worlds[0].processes for side in rounds.turns.kernels]
    for each in both:
        each.resume = lambda held=(), resume=each.resume: (continued.append(machine.clock.monotonic()), resume(held))  # type: ignore[method-assign]

    def touched(rank: int, order: object) -> list[int]:
        if not isinstance(order, CheckPoison):
            return []
        rested = machine.clock.monotonic() - continued[-1] > 0.9 * LATE_SECONDS
        running.append(rested and not any(each.paused for each in both))
        return [CONTENDER] if rank == 1 else []

    machine.oracle.touched = touched
    failed = failing(rounds)
    assert (failed.verdict, failed.failure.rank) == (Verdict.LATE_OUTPUT, 1)
    assert all(running)


@pytest.mark.parametrize(("side", "rival"), [(CONTENDER, ""), (CONTENDER, "rival.py"), (RIVAL, "rival.py")])
def test_kernel_with_wrong_or_late_timed_outputs_fails(side: int, rival: str) -> None:
    machine = MadeMachine()
    honest = machine.oracle.finding
    machine.oracle.finding = lambda rank, order, slot: wrong() if order.side == side else honest(rank, order, slot)
    failed = failing(machine.rounds(rival=rival))
    assert (failed.verdict, failed.side) == (Verdict.WRONG_RESULT, side)

    machine.oracle.finding = honest
    machine.oracle.touched = lambda rank, order: [side] * (isinstance(order, CheckPoison) and side in order.sides)
    failed = failing(machine.rounds(rival=rival))
    assert (failed.verdict, failed.side) == (Verdict.LATE_OUTPUT, side)


@pytest.mark.parametrize(("device", "queues"), [("made-cpu", 0), ("made-gpu", 1000), ("made-gpu", 3)])
def test_references_run_all_iterations_of_duels(device: str, queues: int) -> None:
    machine = MadeMachine(device, reference=MadeKernel(queues=queues))
    rounds = machine.rounds(rival="rival.py")
    rounds.measure()
    orders = machine.ranks(machine.started["baseline"][0]).orders
    compared = [order for order in orders if isinstance(order, CompareOutputs) and order.slots]
    assert {order.against for order in compared} == {REFERENCE}
    assert {order.side for order in compared} == {CONTENDER, RIVAL}
    ran = [order for world in rounds.turns.references.worlds for order in machine.ranks(world).orders]
    slots = {n for each in ran if isinstance(each, ChooseBatch) for n in range(each.first, each.first + each.count)}
    assert all(set(order.slots) | set(order.beside) <= slots for order in compared)
    for clock, wanted in ((rounds.call, True), (rounds.device, queues > 3)):
        found = [number for number, *_ in clock.beside]
        assert len(clock.raw) * wanted <= len(found) <= (len(clock.raw) + 4) * wanted
        assert all(number != following for number, following in itertools.pairwise(found))
        assert all(50.0 < us < 500.0 for _, us, _ in clock.beside)
    assert bool(rounds.device.raw) == (device == "made-gpu")


@pytest.mark.parametrize(("heavy", "rival"), [("kernel", ""), ("kernel", "rival.py"), ("rival", "rival.py")])
def test_a_resting_kernel_with_too_much_memory_fails(heavy: str, rival: str) -> None:
    machine = MadeMachine(**{heavy: (kernel := MadeKernel())})
    rounds = machine.rounds(machine.run(rounds=100), rival=rival)
    machine.clock.after(2 * MEMORY_SECONDS, lambda: setattr(kernel, "excess", "holds 9 GiB"))
    with pytest.raises(WorldFailed, match="holds 9 GiB"):
        rounds.measure()


def test_memory_is_read_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, read = MadeMachine(), list[float]()
    monkeypatch.setattr(World, "check_memory", lambda world: read.append(machine.clock.monotonic()))
    machine.rounds(machine.run(rounds=100)).measure()
    assert len(read) > 2
    assert all(later - earlier >= MEMORY_SECONDS for earlier, later in itertools.pairwise(read))


# --- foreign work on the devices ---------------------------------------------------------------------------


def looking(machine: MadeMachine, foreign) -> Rounds:
    """Returns rounds in which the trusted ranks observe foreign(order) microseconds of foreign work on the devices."""
    machine.oracle = MadeOracle(foreign_us=foreign)
    return machine.rounds(machine.run(rounds=12))


@pytest.mark.parametrize(("side", "name"), [(CONTENDER, "contender"), (REFERENCE, "baseline")])
def test_device_work_before_batches_disturbs_them(side: int, name: str) -> None:
    machine = MadeMachine("made-gpu")
    rounds = looking(machine, lambda order: 300.0 if order.side == side else 1.0)
    failed = failing(rounds)
    assert failed.verdict is Verdict.BASELINE_DISTURBED
    assert f"({name}, call time)" in failed.failure.message
    assert failed.side == CONTENDER
    assert {key.split(",")[0] for key in rounds.samples().foreign_us} == {"contender", "baseline"}


def test_other_programs_work_is_not_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MadeMachine("made-gpu")
    rounds = looking(machine, lambda order: 300.0)
    monkeypatch.setattr(rounds.turns.kind, "used_by_others", lambda gpus: True)
    with pytest.raises(HarnessFailed, match="other programs use these GPUs"):
        rounds.measure()


def test_copies_between_gpus_are_foreign_work(monkeypatch) -> None:
    machine = MadeMachine("made-gpu")
    rounds = looking(machine, lambda order: 1.0)
    monkeypatch.setattr(rounds.turns.kind, "moves_bytes", lambda gpus: True)
    assert failing(rounds).verdict is Verdict.BASELINE_DISTURBED


def test_work_behind_closed_gate_is_seen_as_well() -> None:
    machine = MadeMachine("made-gpu")
    rounds = looking(
        machine, lambda order: 300.0 if rounds.turns.contender_side.worlds[0].state.value == "queued" else 1.0
    )
    assert "(contender, device time)" in failing(rounds).failure.message


def test_seldom_busy_device_is_no_fault() -> None:
    machine = MadeMachine("made-gpu")
    looks = iter(range(10_000))
    rounds = looking(machine, lambda order: 300.0 if next(looks) % 97 == 0 else FOREIGN_US)
    rounds.measure()
    found = [us for times in rounds.samples().foreign_us.values() for us in times]
    assert len(found) > 20
    assert max(found) == 300.0


def test_early_batches_are_examined_more_often() -> None:
    machine = MadeMachine("made-gpu")
    rounds = looking(machine, lambda order: 1.0)
    rounds.measure()
    orders = machine.ranks(machine.started["baseline"][0]).orders
    watched = [order.watch for order in orders if isinstance(order, Reveal)]
    assert 0.2 < sum(watched) / len(watched) < 0.7


@pytest.mark.parametrize(("who", "lasts", "words"), [(None, 0, "its"), (RIVAL, 1, "the other"), (CONTENDER, 2, "its")])
def test_duel_blames_who_left_work_while_it_lasts(who: int | None, lasts: int, words: str) -> None:
    # The devices are busy before the contender's batches: only once it may run, or already while both kernels are
    # stopped, since the turn of the last one or of the last but one.
    machine = MadeMachine("made-gpu")
    turn_of: list[int] = []

    def foreign(order: Reveal) -> float:
        if who is None:
            return 300.0 if order.side == CONTENDER else 0.0
        return 300.0 if order.side in (None, CONTENDER) and who in turn_of[-lasts:] else 0.0

    machine.oracle = MadeOracle(foreign_us=foreign)
    rounds = machine.rounds(machine.run(rounds=24), rival="rival.py")
    for side in rounds.turns.sides:
        number = side.exchange.side
        machine.ranks(side.worlds[0]).on_go = lambda number=number: turn_of.append(number)
    failed = failing(rounds)
    assert failed.verdict is Verdict.BASELINE_DISTURBED
    assert failed.side == (CONTENDER if who is None else who)
    assert f"({words}," in failed.failure.message
