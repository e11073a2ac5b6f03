"""The attack suite's command and table; mutants of its tricks, and the verdicts that they deserve."""

import ast
import random
import re
from pathlib import Path

import msgspec
import pytest
from stored_runs import result
from stored_runs import result as run_result

from arena.errors import UsageError
from benchmarks.attacks.attack_suite import AttackKernel
from benchmarks.attacks.fuzzing import EFFECTS, Mutant, Trick, mutant, read_tricks, undeserved
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


TRICKS = read_tricks(Path(__file__).parents[2] / "attacks" / "tricks")


def made(*effects: str) -> Mutant:
    return Mutant(tuple(Trick(effect, effect, "") for effect in effects), "")


def result(verdict: Verdict = Verdict.PASS, us: float = 5000.0, outcome: str = "slower") -> Result:
    return run_result(verdict, contender_us=Microseconds(call=us, device=None), jail="full", outcome=outcome)


def test_same_seed_makes_same_valid_kernels():
    texts = [[mutant(TRICKS, chance).source for _ in range(60)] for chance in map(random.Random, (1, 1, 2))]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]
    assert len(set(texts[0])) > 50
    for text in texts[0]:
        ast.parse(text)
        assert not re.search(r"\b(EVERY|RANK|NUMBER|LEVELS|LATER|BEFORE)\b", text)


def test_every_trick_and_every_effect_is_drawn():
    drawn = [mutant(TRICKS, random.Random(seed)) for seed in range(400)]
    assert {trick.name for each in drawn for trick in each.tricks} == {trick.name for trick in TRICKS}
    assert {each.effect for each in drawn} == set(EFFECTS)
    for each in drawn:  # a trick that makes outputs wrong is last, so that none undoes it
        assert "wrong" not in [trick.effect for trick in each.tricks[:-1]]


@pytest.mark.parametrize(
    ("effects", "said", "why"),
    [
        (("wrong",), result(Verdict.WRONG_RESULT), ""),
        (("benign", "wrong"), result(), "though its outputs are wrong"),
        (("hides",), result(), ""),
        (("hides",), result(Verdict.BASELINE_DISTURBED), ""),
        (("hides",), result(us=900.0), "timed at 900 us"),
        (("hides", "benign"), result(outcome="faster"), "though every call waits"),
        (("benign",), result(), ""),
        (("benign",), result(Verdict.TIMEOUT), "TIMEOUT"),
        (("wrong",), result(Verdict.HARNESS_ERROR), "HARNESS_ERROR"),
    ],
)
def test_what_is_deserved(effects: tuple[str, ...], said: Result, why: str):
    found = undeserved(made(*effects), said)
    assert why in found
    assert bool(found) == bool(why)


def test_a_trick_says_what_it_does(tmp_path: Path):
    (tmp_path / "nothing.py").write_text("def trick(call): return call\n")
    with pytest.raises(UsageError, match="no `# effect: wrong"):
        read_tricks(tmp_path)
    with pytest.raises(UsageError, match="there are no tricks"):
        read_tricks(tmp_path / "gone")
