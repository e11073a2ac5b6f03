"""The correctness check on simulated worlds: each fault of a kernel in loading or checking leads to its verdict."""

import itertools
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from made_kernels import Fault, MadeKernel, right, wrong
from made_machine import MadeMachine

from sandbox.protocol.events import Checked, Failure, OutputError, PhaseEnded, PhaseStarted
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import Arm, CheckPoison, CompareOutputs, DrawAgain, OutputFinding, Reveal
from sandbox.protocol.verdict import Verdict
from sandbox.referee import correctness as correctness_module
from sandbox.referee.correctness import CHECKED_SLOTS, CorrectnessCheck
from sandbox.referee.wording import place_of
from sandbox.timing.turns import LATE_SECONDS
from sandbox.worlds.deadlines import COMPILE
from sandbox.worlds.exchange import Exchange, _factor_words
from sandbox.worlds.world import World


def correctness_check(machine: MadeMachine) -> CorrectnessCheck:
    pool, setting = machine.pool(), machine.setting()
    stage = pool.oracle.prepare(setting)
    world = pool.contenders.take(setting)
    exchange = Exchange(stage, world, machine.await_all, machine.events.append, machine.clock)
    return CorrectnessCheck(machine.run(), exchange)


def proved(machine: MadeMachine) -> tuple[Verdict, Failure]:
    verdict, failure = correctness_check(machine).judge()
    assert failure is not None
    return verdict, failure


def of_kernel(*faults: Fault, **kernel: Any) -> MadeMachine:
    return MadeMachine(kernel=MadeKernel(faults=list(faults), **kernel))


def test_right_kernel_passes_with_its_phases_in_order() -> None:
    machine = MadeMachine()
    correctness = correctness_check(machine)
    assert correctness.judge() == (Verdict.PASS, None)
    assert machine.processes(correctness.contender).shown == [correctness.run.kernel.sha256]
    phases = [(type(event).__name__, event.phase) for event in machine.events if hasattr(event, "phase")]
    assert phases == [(kind, name) for name in ("load", "check") for kind in ("PhaseStarted", "PhaseEnded")]
    (checked,) = machine.of(Checked)
    assert (checked.verdict, checked.paper_rule, checked.failure) == (Verdict.PASS, "match", None)
    assert set(correctness.seconds) == {"load", "check"}
    assert correctness.exchange.findings.keys() == {0, 1}


@pytest.mark.parametrize("wrong_elements", [0, 3])
def test_error_of_whole_output_names_no_element(wrong_elements: int) -> None:
    machine = MadeMachine()
    found = wrong()
    output = msgspec.structs.replace(found.outputs[0], wrong=wrong_elements)
    machine.oracle.finding = lambda rank, order, slot: msgspec.structs.replace(found, outputs=[output])
    verdict, failure = proved(machine)
    as_a_whole = "every element is within its own limit" in failure.message
    assert (verdict, as_a_whole) == (Verdict.WRONG_RESULT, wrong_elements == 0)
    assert (failure.index is None) == as_a_whole


@pytest.mark.parametrize(("preset", "meaningful"), [("tiny", 0), ("paper", 1)])
def test_paper_checks_one_meaningful_iteration(preset: str, meaningful: int) -> None:
    machine = MadeMachine()
    machine.preset = preset
    correctness = correctness_check(machine)
    assert correctness.judge()[0] is Verdict.PASS
    given = machine.ranks(machine.started["baseline"][0]).orders
    drawn = [order for order in given if isinstance(order, DrawAgain) and order.replace and order.meaningful]
    assert len(drawn) == meaningful


def test_few_iterations_are_checked_on_private_copies() -> None:
    for in_bytes, count in ((1 << 10, CHECKED_SLOTS), (1 << 30, 1)):
        machine = MadeMachine()
        machine.oracle.in_bytes = in_bytes
        correctness = correctness_check(machine)
        correctness.judge()
        (armed,) = [o for o in machine.ranks(correctness.contender).orders if isinstance(o, Arm)]
        assert armed.checking
        assert len(armed.slots) == count
        (revealed,) = [o for o in machine.ranks(machine.started["baseline"][0]).orders if isinstance(o, Reveal)]
        assert (revealed.first, revealed.count) == (0, count)


@pytest.mark.parametrize(
    ("says", "verdict", "phase"),
    [
        (Kind.SYNTAX, Verdict.COMPILE_ERROR, "compile"),
        (Kind.COMPILE_FAILED, Verdict.COMPILE_ERROR, "compile"),
        (Kind.LOAD_FAILED, Verdict.LOAD_ERROR, "load"),
        (Kind.NO_MEMORY, Verdict.OUT_OF_MEMORY, "load"),
        (Kind.STALLED, Verdict.TIMEOUT, "load"),
        (Kind.DEVICE, Verdict.DEVICE_ERROR, "load"),
        (Kind.REFUSED, Verdict.PROTOCOL, "load"),
    ],
)
def test_rank_that_cannot_load_kernel_says_why(says: Kind, verdict: Verdict, phase: str) -> None:
    fault = Fault(Kind.LOAD, says, ranks=(1,), text="Why\nit failed", line=7)
    found, failure = proved(of_kernel(fault))
    assert (found, failure.phase, failure.rank, failure.line) == (verdict, phase, 1, 7)
    assert failure.message in ("Why", "it failed")  # of a syntax error, the message is the last line
    assert failure.text == "Why\nit failed"


@pytest.mark.parametrize(
    ("says", "verdict"),
    [
        (Kind.RAISED, Verdict.CRASH),
        (Kind.BAD_STRUCTURE, Verdict.WRONG_STRUCTURE),
        (Kind.MUTATED, Verdict.MUTATED_INPUT),
        (Kind.COMPILE_FAILED, Verdict.COMPILE_ERROR),
        (Kind.READY, Verdict.PROTOCOL),
    ],
)
def test_a_first_call_that_fails_is_named(says: Kind, verdict: Verdict) -> None:
    found, failure = proved(of_kernel(Fault(Kind.GO, says, text="no")))
    assert (found, failure.rank) == (verdict, 0)


@pytest.mark.parametrize(
    ("status", "verdict", "words"),
    [
        (int(signal.SIGSEGV), Verdict.CRASH, "the process was killed by SIGSEGV"),
        (int(signal.SIGKILL), Verdict.OUT_OF_MEMORY, "the process was killed by SIGKILL"),
        (3 << 8, Verdict.CRASH, "the process exited with status 3 before its work was done"),
        (-1, Verdict.CRASH, "the process ended before its work was done"),
    ],
)
def test_ended_rank_is_named_with_its_cause(status: int, verdict: Verdict, words: str) -> None:
    found, failure = proved(of_kernel(Fault(Kind.GO, status=status, ranks=(1,))))
    assert found is verdict
    assert words in failure.message


def test_world_killed_for_memory_is_out_of_memory() -> None:
    machine = of_kernel(Fault(Kind.GO, status=9))
    correctness = correctness_check(machine)
    machine.processes(correctness.contender).why_killed = "the world held 3 GiB"
    verdict, failure = correctness.judge()
    assert (verdict, failure and failure.message) == (Verdict.OUT_OF_MEMORY, "the world held 3 GiB")


@pytest.mark.parametrize(("order", "phase"), [(Kind.LOAD, "load"), (Kind.GO, "check"), (Kind.ARM, "check")])
def test_silent_ranks_miss_deadline_and_are_asked_where(order: Kind, phase: str) -> None:
    machine = of_kernel(Fault(order, ranks=(0, 1)))
    correctness = correctness_check(machine)
    before = machine.clock.monotonic()
    verdict, failure = correctness.judge()
    assert verdict is Verdict.TIMEOUT
    assert failure.message == "ranks 0, 1 did not finish in time"
    assert failure.phase == phase
    assert machine.processes(correctness.contender).stacks_printed
    assert correctness.timed_out
    limit = correctness.limits.first_call if order is Kind.GO else correctness.limits.load
    assert limit < machine.clock.monotonic() - before < limit + 2.0  # the second half begins with the first reading


def stack(*frames: tuple[str, int], thread: str = "Current thread") -> str:
    rows = [f'  File "{path}", line {line} in f' for path, line in frames]
    return "\n".join([f"{thread} 0x00007f (most recent call first):", *rows, ""])


def test_blocking_rank_is_named_with_its_line() -> None:
    machine = of_kernel(Fault(Kind.GO, ranks=(0, 1)))
    correctness = correctness_check(machine)
    correctness.run = msgspec.structs.replace(correctness.run, kernel_name="kernel.py", source="\n" * 12)
    said = machine.ranks(correctness.contender).said
    said[0] = stack(("/x/torch/distributed/c10d.py", 2949), ("/tmp/w/kernel.py", 10), ("/a/rank.py", 300))
    said[1] = stack(("/t.py", 1), thread="Thread") + stack(("/tmp/w/kernel.py", 8), ("/a/rank.py", 300))
    _, failure = correctness.judge()
    assert failure.message.endswith("in time: rank 0 waits at line 10, rank 1 is at line 8")
    assert (failure.rank, failure.line) == (1, 8)


def test_killed_rank_is_told_with_its_last_stack() -> None:
    machine = of_kernel(Fault(Kind.GO, status=int(signal.SIGSEGV), ranks=(1,)))
    correctness = correctness_check(machine)
    correctness.run = msgspec.structs.replace(correctness.run, kernel_name="kernel.py", source="\n" * 12)
    frames = (("/x/ctypes/__init__.py", 2), ("/tmp/w/kernel.py", 8), ("/tmp/w/kernel.py", 11), ("/a/rank.py", 300))
    machine.ranks(correctness.contender).said[1] = stack(("/x/sandbox/rank/rank.py", 5), *frames)  # tells the exit
    verdict, failure = correctness.judge()
    assert verdict is Verdict.CRASH
    assert (failure.rank, failure.line) == (1, 8)
    assert failure.text.splitlines() == [
        "Stack (most recent call first):",
        '  File "/x/ctypes/__init__.py", line 2, in f',
        '  File "kernel.py", line 8, in f',
        '  File "kernel.py", line 11, in f',
        "  (1 more of the harness)",
    ]


@pytest.mark.parametrize(
    ("waits", "words", "known"), [(False, "both are", 2), (True, "both wait", 2), (False, "rank 0 is", 1)]
)
def test_ranks_at_the_same_line_are_named_once(waits: bool, words: str, known: int) -> None:
    machine = of_kernel(Fault(Kind.GO, ranks=(0, 1)))
    correctness = correctness_check(machine)
    correctness.run = msgspec.structs.replace(correctness.run, kernel_name="kernel.py", source="\n" * 12)
    waiting = [("/x/torch/distributed/c10d.py", 2949)] * waits
    for said in range(known):
        machine.ranks(correctness.contender).said[said] = stack(*waiting, ("/tmp/w/kernel.py", 8), ("/a/rank.py", 300))
    _, failure = correctness.judge()
    assert (failure.rank, failure.line) == (0, 8)
    assert failure.message == f"ranks 0, 1 did not finish in time: {words} at line 8"


@pytest.mark.parametrize(
    "printed", ["", "nothing of the kind", stack(("/tmp/other.py", 3)), stack(("/tmp/kernel.py", 99))]
)
def test_prints_that_tell_no_place_name_none(printed: str) -> None:
    assert place_of(0, printed, "kernel.py", 12) is None


def test_file_that_does_not_load_gets_advice() -> None:
    head = "Traceback (most recent call last):"
    raised = Fault(Kind.LOAD, Kind.LOAD_FAILED, text=f"NameError: x\n\n{head}\n  File", line=3)
    _, failure = proved(of_kernel(raised))
    assert failure.advice == "Correct this line. The traceback shows the calls that lead to it."
    _, failure = proved(of_kernel(Fault(Kind.LOAD, Kind.LOAD_FAILED, text="the file is empty")))
    assert f"{failure.message}. {failure.advice}".count("solution") == 1


@pytest.mark.parametrize("built", [False, True])
def test_building_shared_parts_counts_as_compiling(built: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    backends = [SimpleNamespace(build=None), SimpleNamespace(build=lambda folder: built)]
    monkeypatch.setattr(correctness_module, "backends_of", lambda kernel, anywhere: backends)
    correctness = correctness_check(MadeMachine())
    correctness.build_shared()
    assert ("compile" in correctness.seconds) == built


def test_compiling_is_phase_with_its_own_deadline() -> None:
    machine = of_kernel(compile_s=60.0)
    correctness = correctness_check(machine)
    assert correctness.judge()[0] is Verdict.PASS
    assert correctness.seconds["compile"] == pytest.approx(60.0)
    assert [event.phase for event in machine.of(PhaseStarted)] == ["load", "compile", "check"]
    assert [event.phase for event in machine.of(PhaseEnded)] == ["compile", "load", "check"]


def test_compiling_has_an_end_too() -> None:
    machine = of_kernel(compile_s=1000.0)
    correctness = correctness_check(machine)
    before = machine.clock.monotonic()
    verdict, failure = correctness.judge()
    assert verdict is Verdict.TIMEOUT
    assert failure.message.startswith("ranks 0, 1 had not finished compiling after 14")
    assert correctness.seconds["compile"] == pytest.approx(COMPILE + correctness.limits.load, abs=2.0)
    assert failure.advice == "Compile less: smaller functions, or fewer variants to tune."
    assert machine.clock.monotonic() - before == pytest.approx(COMPILE + correctness.limits.load, abs=2.0)


# --- comparing -----------------------------------------------------------------------------------------------

Finds = Callable[[int, CompareOutputs, int], OutputFinding]


def finding(machine: MadeMachine, finds: Finds) -> MadeMachine:
    machine.oracle.finding = finds
    return machine


def on_rank_1(found: OutputFinding) -> Finds:
    return lambda rank, order, slot: found if rank == 1 else right()


@pytest.mark.parametrize("verdict", [Verdict.WRONG_RESULT, Verdict.NONFINITE])
def test_wrong_outputs_say_where(verdict: Verdict) -> None:
    found, failure = proved(finding(MadeMachine(), on_rank_1(wrong(verdict))))
    nonfinite = verdict is Verdict.NONFINITE
    words = ", some of them not finite" if nonfinite else " (relative RMS error 1.00e+00, limit "
    assert found is verdict
    assert failure.message.startswith(f"output out: 3 of 10 elements wrong{words}")
    assert "limit" not in failure.message or not nonfinite
    assert (failure.rank, failure.index, failure.expected, failure.got) == (1, [4], "1.0", "2.0")
    assert failure.wrong_share == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("expected", "got", "rms", "factor"),
    [
        ("-1.5", "-3.01", 1.0, "2"),
        ("3", "0", 1.0, "0"),
        ("4", "1", 0.75, "0.25"),
        ("1", "64", 63.5, "64"),
        ("4", "1", 0.5, ""),
        ("0", "1", 1.0, ""),
    ],
)
def test_uniform_factor_of_wrong_output_is_named(expected: str, got: str, rms: float, factor: str) -> None:
    output = OutputError("out", False, False, rms, rms, 0.0, 0.0, 0.001, 0.01, expected=expected, got=got)
    assert _factor_words(output).partition("got is ")[2].partition(" ")[0] == factor


def test_uncompared_structure_has_its_own_words() -> None:
    found = OutputFinding(Verdict.WRONG_STRUCTURE, message="nothing was written", output="out")
    verdict, failure = proved(finding(MadeMachine(), on_rank_1(found)))
    assert (verdict, failure.message, failure.output) == (Verdict.WRONG_STRUCTURE, "nothing was written", "out")


def late(machine: MadeMachine) -> MadeMachine:
    """Outputs are wrong until LATE_SECONDS after their first comparison."""
    seen: list[float] = []

    def found(rank: int, order: CompareOutputs, slot: int) -> OutputFinding:
        seen.append(machine.clock.monotonic())
        return wrong() if seen[-1] - seen[0] < LATE_SECONDS else right()

    return finding(machine, found)


def test_outputs_right_later_were_still_being_written() -> None:
    verdict, failure = proved(late(MadeMachine()))
    assert verdict is Verdict.LATE_OUTPUT
    assert failure.message == "the outputs were still being written when solution() returned"


@pytest.mark.parametrize("fault", [Fault(Kind.RECOPY), Fault(Kind.RECOPY, Kind.RAISED)])
def test_rank_that_cannot_show_outputs_again_is_wrong(fault: Fault) -> None:
    assert proved(late(of_kernel(fault)))[0] is Verdict.WRONG_RESULT


def test_writes_after_outputs_were_read_are_late() -> None:
    machine, read = MadeMachine(), []
    machine.oracle.finding = lambda rank, order, slot: read.append(machine.clock.monotonic()) or right()
    machine.oracle.touched = lambda rank, order: (
        [0] * (isinstance(order, CheckPoison) and rank and machine.clock.monotonic() > read[0] + 0.9 * LATE_SECONDS)
    )
    verdict, failure = proved(machine)
    assert (verdict, failure.rank) == (Verdict.LATE_OUTPUT, 1)


def test_upstreams_rule_is_told_apart() -> None:
    machine = finding(MadeMachine(), lambda rank, order, slot: OutputFinding(Verdict.PASS, paper=slot != 1))
    correctness = correctness_check(machine)
    assert correctness.paper_rule() is None
    assert correctness.judge()[0] is Verdict.PASS
    assert correctness.paper_rule() == "mismatch"


@pytest.mark.parametrize(("busy", "verdict"), [(0.9, Verdict.PASS), (0.1, Verdict.TIMEOUT)])
def test_first_calls_that_compute_have_twice_as_long(busy: float, verdict: Verdict) -> None:
    machine = MadeMachine(kernel=MadeKernel(call_us=lambda calls: 15e6, cpu_share=busy))
    machine.clock.sleep(1000.0)
    assert correctness_check(machine).judge()[0] is verdict


@pytest.mark.parametrize("step", [0, 100])  # of a count that the kernel may forge
def test_a_first_call_is_extended_once_only(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    counts = itertools.count(1, step)
    machine = of_kernel(Fault(Kind.GO), cpu_share=1.0, begun=lambda rank, calls: next(counts))
    correctness = correctness_check(machine)
    waits: list[float] = []
    await_done = correctness.exchange.await_done

    def counted(world: World, limit: float) -> int:
        waits.append(limit)
        assert len(waits) < 4, "a kernel that computes without an end is never ended"
        return await_done(world, limit)

    monkeypatch.setattr(correctness.exchange, "await_done", counted)
    assert correctness.judge()[0] is Verdict.TIMEOUT
    assert len(waits) == 2
