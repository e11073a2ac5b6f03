"""Two contenders in one run: each is compared with the oracle, each gets its own verdict, and the faster one wins."""

import pytest
from playing_agent import RIGHT

from sandbox.protocol import events
from sandbox.protocol.verdict import Verdict

pytestmark = pytest.mark.slow

WRONG_LATER = RIGHT.replace(
    "def solution(tensor):", "calls = 0\ndef solution(tensor):\n    global calls\n    calls += 1"
).replace("return total", "return total if calls < 4 else total * 2")
AGREES = WRONG_LATER.replace("calls < 4", "calls < 4 or total[0, 0] > 0")
"""Two of these return the same wrong bits on the same half of the inputs."""

SPINS = "import os\nif os.fork() == 0:\n    while True:\n        pass\n" + RIGHT


def judged(referee, kernel: str, rival: str, rounds: int = 2) -> events.Result:
    versus = events.Contender(kernel_name="rival.py" if rival else "baseline", source=rival)
    result = referee.judge(referee.setting("allreduce"), kernel, rounds=rounds, versus=versus)
    assert result.rival is not None
    return result


@pytest.mark.parametrize(
    ("kernel", "rival", "verdict", "rivals"),
    [
        (RIGHT, WRONG_LATER, Verdict.PASS, Verdict.WRONG_RESULT),
        pytest.param(WRONG_LATER, RIGHT, Verdict.WRONG_RESULT, Verdict.PASS, marks=pytest.mark.long),
    ],
    ids=["rival wrong when timed", "wrong when timed"],
)
def test_each_answers_for_itself(referee, kernel, rival, verdict, rivals):
    result = judged(referee, kernel, rival)
    assert (result.verdict, result.rival.verdict) == (verdict, rivals)
    assert result.speedup is None


OWN_FAULTS = {
    WRONG_LATER: {Verdict.WRONG_RESULT},
    AGREES: {Verdict.WRONG_RESULT},
    SPINS: {Verdict.BASELINE_DISTURBED, Verdict.TIMEOUT},
}
"""The verdicts on each cheat besides PASS. One that only slows itself passes."""


@pytest.mark.parametrize(
    ("kernel", "rival"),
    [
        pytest.param(AGREES, AGREES, id="two that agree"),
        pytest.param(SPINS, WRONG_LATER, marks=pytest.mark.further, id="spins against wrong"),
        pytest.param(WRONG_LATER, SPINS, marks=pytest.mark.further, id="wrong against spins"),
        pytest.param(SPINS, SPINS, marks=pytest.mark.further, id="two spin"),
    ],
)
def test_no_cheat_gains_against_another(referee, kernel, rival):
    versus = events.Contender(kernel_name="rival.py", source=rival)
    referee.start(referee.setting("allreduce"), kernel, rounds=2, versus=versus)
    result = referee.until(events.Finished).result
    if result.verdict is Verdict.HARNESS_ERROR:  # who spins makes the machine busy
        assert result.speedup is None
        assert "too busy" in result.detail
        return
    found = [(kernel, result.verdict), (rival, result.rival.verdict)]
    passed = {source for source, verdict in found if verdict is Verdict.PASS}
    assert all(verdict in OWN_FAULTS[source] for source, verdict in found if verdict is not Verdict.PASS)
    # The first side that fails ends the run without a speedup, so the other one may pass.
    assert result.speedup is None or passed == {SPINS}
