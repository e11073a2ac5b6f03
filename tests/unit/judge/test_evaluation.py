"""The whole evaluation of a revision on simulated worlds, from its source to a result."""

import contextlib
from collections.abc import Iterator

import msgspec
import pytest
from made_kernels import Fault, MadeKernel, noisy, right, wrong
from made_machine import MadeMachine
from msgspec import UNSET

from problems.catalogue import load_catalogue
from sandbox.machine.devices import KINDS
from sandbox.protocol.events import Checked, PhaseStarted, Result, Setting
from sandbox.protocol.frames import LOST, Kind
from sandbox.protocol.messages import ChooseBatch
from sandbox.protocol.verdict import Verdict
from sandbox.referee.correctness import CorrectnessCheck
from sandbox.referee.evaluation import Evaluation
from sandbox.referee.labels import NO_DEVICE_TIME, REUSES, SHORT
from sandbox.timing.roofline import Peaks, bound_us
from sandbox.worlds.exchange import Exchange

PEAKS = Peaks(1e12, 1e10, 1e10, "made-gpu")


def revision(machine: MadeMachine, rounds: int | None = 6, peaks: Peaks = PEAKS, energy: bool = False) -> Evaluation:
    pool, setting, run = machine.pool(), machine.setting(), machine.run(rounds=rounds, energy=energy)
    stage = pool.prepare(setting, 2)
    world = pool.contenders.take(setting)
    correctness = CorrectnessCheck(run, Exchange(stage, world, machine.await_all, machine.events.append, machine.clock))
    opened = None if rounds == 0 else lambda: machine.baseline_side(pool, stage, 2)
    return Evaluation(correctness, peaks, opened)


def judged(machine: MadeMachine, rounds: int | None = 6, peaks: Peaks = PEAKS) -> Result:
    return revision(machine, rounds, peaks).judge()


def gpu(kernel: MadeKernel | None = None, reference: MadeKernel | None = None) -> MadeMachine:
    return MadeMachine("made-gpu", kernel or MadeKernel(noisy(50.0), noisy(40.0)), reference=reference)


def test_kernel_that_passes_has_both_times_and_roofline() -> None:
    result = (evaluation := revision(gpu())).judge()
    assert result.verdict is Verdict.PASS
    assert (result.outcome, result.clock) == ("faster", "call")
    assert result.told.startswith("2.04× faster end-to-end")
    assert (result.baseline_us.call, result.contender_us.call) == pytest.approx((98, 48))
    assert (result.baseline_us.device, result.contender_us.device) == pytest.approx((78, 38))
    assert result.speedup.device.median == pytest.approx(78 / 38)
    # The bound is 3 × 65536 bytes of a rank's own memory at 1e10 bytes/s. The kernel's device time is 38 us.
    assert (result.roofline.bound_us, result.roofline.limiter) == (pytest.approx(19.66, abs=0.01), "memory")
    assert result.roofline.percent == pytest.approx(100 * 19.66 / 38, abs=0.1)
    assert result.seconds.time > 0.0
    assert result.seconds.total >= result.seconds.load + result.seconds.check + result.seconds.time
    assert [*evaluation.measure_on(0.1, bool), *evaluation.measure_on(0.0, bool)]
    assert evaluation.result(Verdict.PASS, None).seconds.time > result.seconds.time + 0.05
    assert (result.rounds, result.labels, result.error.rms) == (6, [], 1e-3)


def test_machine_that_was_never_calibrated_has_no_roofline() -> None:
    result = judged(gpu(), peaks=Peaks(device="made-gpu"))
    assert result.verdict is Verdict.PASS
    assert result.roofline is None


def test_a_kernel_without_device_time_says_so() -> None:
    result = judged(gpu(MadeKernel(noisy(50.0), queues=0)))
    assert result.labels == [NO_DEVICE_TIME]
    assert result.contender_us.device is None


def test_short_calls_name_the_harness_share() -> None:
    result = judged(gpu(MadeKernel(noisy(15.0), noisy(12.0))), peaks=Peaks(device="made-gpu"))
    assert result.labels == [SHORT.format(2.0)]


def test_without_rounds_a_kernel_is_only_checked() -> None:
    machine = gpu()
    result = judged(machine, rounds=0)
    assert result.verdict is Verdict.PASS
    assert (result.speedup, result.outcome, result.told, result.rounds) == (None, "", "", 0)
    assert "time" not in [event.phase for event in machine.of(PhaseStarted)]


@pytest.mark.parametrize(
    ("kernel", "verdict"),
    [
        (MadeKernel(faults=[Fault(Kind.GO, Kind.RAISED, after=30)]), Verdict.CRASH),
        (MadeKernel(faults=[Fault(Kind.GO, after=30)]), Verdict.TIMEOUT),
        (MadeKernel(faults=[Fault(Kind.CHOOSE, Kind.DONE, after=30, extra=True)]), Verdict.PROTOCOL),
        (MadeKernel(cpu_share=0.7), Verdict.BASELINE_DISTURBED),
        (MadeKernel(call_us=noisy(1e-5)), Verdict.IMPOSSIBLE_SPEED),
    ],
)
def test_failures_while_timed_have_verdict_and_no_times(kernel: MadeKernel, verdict: Verdict) -> None:
    result = judged(gpu(kernel), rounds=12)
    assert result.verdict is verdict
    assert result.failure.phase == "time"
    assert (result.speedup, result.baseline_us, result.roofline, result.outcome) == (None, None, None, "")


def test_timing_starts_again_once_where_outputs_are_lost() -> None:
    machine = gpu(MadeKernel(noisy(50.0), noisy(40.0), memory_reports=[0] * 12 + [LOST] * 3))
    judge = revision(machine, rounds=12)
    result = judge.judge()
    assert (result.verdict, result.rounds, result.labels) == (Verdict.PASS, 12, [REUSES])
    assert [event.phase for event in machine.of(PhaseStarted)].count("time") == 2
    assert result.speedup is not None
    chosen = [
        order for order in machine.ranks(judge.correctness.exchange.contender).orders if isinstance(order, ChooseBatch)
    ]
    assert {order.reuses for order in chosen[:6]} == {False}
    assert {order.reuses for order in chosen[-12:]} == {True}  # other ranks would lose theirs later


def test_memory_used_again_in_check_loses_nothing() -> None:
    machine = gpu(MadeKernel(noisy(50.0), noisy(40.0), memory_reports=[LOST]))
    assert judged(machine).verdict is Verdict.PASS
    assert [event.phase for event in machine.of(PhaseStarted)].count("time") == 1


def test_repeatedly_lost_outputs_are_compared() -> None:
    machine = gpu(MadeKernel(noisy(50.0), noisy(40.0), memory_reports=[0] + [LOST] * 1000))
    machine.oracle.finding = lambda rank, order, slot: wrong() if machine.of(Checked) else right()
    assert judged(machine).verdict is Verdict.WRONG_RESULT


def test_devices_are_leased_only_for_what_is_timed() -> None:
    machine = gpu()
    judge = revision(machine)
    phases: list[str] = []

    @contextlib.contextmanager
    def leased(urgency: int) -> Iterator[None]:
        phases.append(machine.of(PhaseStarted)[-1].phase)
        yield
        phases.append(machine.of(PhaseStarted)[-1].phase)

    judge.leased = leased
    judge.judge()
    assert phases == ["check", "time"]


def test_noisy_calls_leave_the_headline_to_device_time() -> None:
    reference = MadeKernel(noisy(100.0, 0.8, seed=1), noisy(20.0, 0.002, seed=2))
    kernel = MadeKernel(noisy(100.0, 0.8, seed=3), noisy(10.0, 0.002, seed=4))
    result = judged(gpu(kernel, reference), rounds=16)
    assert (result.outcome, result.clock) == ("faster", "device")
    assert "; end-to-end " in result.told
    assert "more rounds" in result.advice


def test_energy_is_in_requested_passing_results() -> None:
    assert judged(gpu()).energy is UNSET
    found = revision(gpu(), energy=True).judge()
    assert found.energy.missing == "CPU ranks have no counter of energy"  # simulated worlds are on CPU ranks
    machine = gpu()
    machine.oracle.finding = lambda rank, order, slot: wrong()
    assert revision(machine, energy=True).judge().energy is UNSET
    assert revision(gpu(), rounds=0, energy=True).judge().energy is UNSET


# --- The bound of a problem on a machine, and speeds that no machine reaches ---------------------------------


BYTES = 65536
"""Bytes that a rank sends, and receives, in the smallest all-gather. It moves three times as many in its own memory."""


def setting(**changes: object) -> Setting:
    return msgspec.structs.replace(MadeMachine().setting(), **changes)


@pytest.mark.parametrize(
    ("peaks", "limiter", "seconds"),
    [
        (Peaks(1e12, 1e9, 1e12), "memory", 3 * BYTES / 1e9),
        (Peaks(1e12, 1e12, 1e9), "link", BYTES / 1e9),
        (Peaks(1e-9, 1e12, 1e12), "memory", 3 * BYTES / 1e12),  # an all-gather computes nothing
    ],
)
def test_the_slowest_resource_is_the_bound(peaks: Peaks, limiter: str, seconds: float) -> None:
    bound, found = bound_us(setting(), peaks)
    assert found == limiter
    assert bound == pytest.approx(seconds * 1e6)


def test_computing_can_be_the_bound() -> None:
    problem = setting().problem_dir.replace("collective/allgather", "tensor/gemm_allreduce")
    gemm = setting(problem_dir=problem, sizes={"M": 256, "N": 256, "K": 256})
    assert bound_us(gemm, Peaks(1.0, 1e12, 1e12))[1] == "compute"


@pytest.mark.parametrize("number", ["31", "32", "50", "51"])
def test_experts_of_one_rank_count_token_once(number: str) -> None:
    problem = load_catalogue().find(number)
    sizes = problem.presets["production"]
    cost = problem.cost(sizes, 1, "bfloat16")
    mlp = 6 * sizes["M"] * sizes["N"] * sizes["I"]
    assert mlp <= cost.flops < 1.5 * mlp  # the router and low-rank branches are small


def test_peaks_are_those_of_the_run_dtype() -> None:
    measured = {"flops.bfloat16": 1.0, "flops.float32": 2.0, "local": 3.0, "link": 4.0}
    assert Peaks.of(measured, setting(dtype="float16")) == Peaks(1.0, 3.0, 4.0, "made-cpu")
    assert Peaks.of(measured, setting(dtype="float32")) == Peaks(2.0, 3.0, 4.0, "made-cpu")
    assert Peaks.of({"flops.float32": 2.0, "local": 3.0}, setting(dtype="int64")).link == 3.0


def test_machine_is_known_once_fully_measured() -> None:
    assert Peaks(1.0, 1.0, 1.0).known
    assert not Peaks(1.0, 0.0, 1.0).known
    assert not Peaks.of({}, setting()).known


@pytest.mark.parametrize("device", ["cpu", "cuda", "made-gpu"])
def test_impossible_lies_far_beyond_any_device(device: str) -> None:
    measured = Peaks(1.0, 1.0, 1.0, device).impossible()
    assert (measured.flops, measured.local, measured.link) == (4.0, 16.0, 8.0)
    never = Peaks(device=device).impossible()
    assert never.flops == KINDS[device].out_of_reach[0]
    assert never.known
