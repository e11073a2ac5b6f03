"""The attack suite's command and its table."""

from pathlib import Path

import msgspec
import pytest
from stored_runs import result

from arena.errors import UsageError
from benchmarks.attacks.attack_suite import (
    BACKEND_SETUPS,
    TWIN,
    Attack,
    AttackKernel,
    AttackOutcome,
    read_catalogue,
    read_kernels,
    summary,
    table,
    with_backend,
)
from benchmarks.attacks.main import SUITE, command
from sandbox.protocol.events import Microseconds, Result
from sandbox.protocol.result import Batches, Samples
from sandbox.protocol.verdict import Verdict

KERNEL = AttackKernel("t01_naps", "T1", (Verdict.PASS,), "allreduce", "", at_least_us=4000)
PASSED = result(contender_us=Microseconds(call=5000.0, device=None), jail="full")


def test_another_verdict_and_a_forged_time_are_surprises():
    assert KERNEL.surprise(PASSED) == ""
    forged = msgspec.structs.replace(PASSED, contender_us=Microseconds(call=2.0, device=None))
    assert "4000" in KERNEL.surprise(forged)
    assert "CRASH" in KERNEL.surprise(msgspec.structs.replace(PASSED, verdict=Verdict.CRASH))


def test_too_short_batches_give_an_attack_no_chance():
    ahead = msgspec.structs.replace(KERNEL, calls=5)

    def passed(calls: int) -> Result:
        return msgspec.structs.replace(PASSED, samples=Samples(call=[Batches(calls, 1.0, 1.0, True)]))

    assert ahead.had_no_chance(passed(4))
    assert not ahead.had_no_chance(passed(5))
    assert not KERNEL.had_no_chance(passed(1))
    assert not ahead.had_no_chance(msgspec.structs.replace(passed(4), verdict=Verdict.WRONG_RESULT))


def test_the_table_counts_attacks_and_twins():
    catalogue = [
        Attack("A1", "caches", "fresh inputs"),
        Attack("A2", "skips", "slots"),
        Attack("T7", "graph", "", "a GPU"),
    ]
    outcomes = [
        AttackOutcome("a01", "A1", "WRONG_RESULT", "WRONG_RESULT"),
        AttackOutcome("a02", "A2", "WRONG_RESULT", "PASS", surprise="PASS"),
        AttackOutcome("t07", "T7", "WRONG_RESULT", "not applicable"),
        AttackOutcome("honest", TWIN, "PASS", "PASS", harm=("a datagram",)),
    ]
    assert summary(catalogue, outcomes) == (
        "2 of 3 attacks as expected (1 of them not applicable on this machine); 1 of 1 honest twins rejected"
    )
    lines = table(catalogue, outcomes)
    assert "| A1 | caches | `a01` | WRONG_RESULT | WRONG_RESULT | ✓ |" in lines
    assert any(line.startswith("| A2 ") and "✗ PASS" in line for line in lines)
    assert any(line.startswith("| `honest`") and "a datagram" in line for line in lines)


def test_without_a_checkout_the_command_says_so(tmp_path):
    with pytest.raises(UsageError) as refused:
        read_catalogue(tmp_path)
    assert "checkout" in refused.value.advice


def test_unknown_attack_and_missing_place_are_usage_errors(pkb_arena, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("no markers here\n")
    with pytest.raises(UsageError, match="there is no attack Z9"):
        command.main(["--only", "Z9"], standalone_mode=False)
    with pytest.raises(UsageError) as refused:
        command.main(["--write", str(page)], standalone_mode=False)
    assert "attacks: begin" in f"{refused.value.message} {refused.value.advice}"
    assert Path(page).read_text() == "no markers here\n"


@pytest.mark.parametrize("backend", BACKEND_SETUPS)
def test_kernel_of_suite_can_set_backend_up_first(backend):
    for kernel in read_kernels(SUITE):
        behind = with_backend(kernel, backend)
        setup = f"{BACKEND_SETUPS[backend]}\n"
        assert behind.device == "cuda"
        assert behind.source.index(setup) < behind.source.index('"""')
        assert behind.source.replace(setup, "", 1) == kernel.source
