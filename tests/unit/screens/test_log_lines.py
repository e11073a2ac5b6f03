"""Lines of the log pane for the events of a run."""

from pathlib import Path

import msgspec

from sandbox.protocol.events import Checked, Failure, Finished, Log, PhaseEnded, decode_event
from sandbox.protocol.verdict import Verdict
from screens.kernel.log_lines import lines_of

PASSED = Path(__file__).parents[2] / "ui" / "recordings" / "pass.jsonl"


def test_a_verdict_says_where_its_speed_comes_from() -> None:
    finished = decode_event(PASSED.read_bytes().splitlines()[-1])
    assert isinstance(finished, Finished)
    labelled = msgspec.structs.replace(finished.result, labels=["library calls only"])
    texts = [line.text for line in lines_of(msgspec.structs.replace(finished, result=labelled))]
    assert texts[0] == "library calls only"
    assert texts[1].startswith("finished: PASS")
    assert len(lines_of(finished)) == 1


def test_the_referees_own_words_belong_to_no_rank() -> None:
    (line,) = lines_of(Log(run_id="r", rank=-1, stream="arena", text="this one waits\n"))
    assert (line.text, line.rank, line.kind) == ("this one waits", None, "note")


def test_a_failure_that_was_told_is_not_told_again_at_the_end() -> None:
    failure = Failure(phase="compile", message="no such type", advice="", rank=0)
    checked = Checked(run_id="r", verdict=Verdict.COMPILE_ERROR, seconds=0.3, failure=failure)
    assert [line.text for line in lines_of(checked)] == ["no such type", "COMPILE_ERROR after 0.30 s"]
    ended = PhaseEnded(run_id="r", phase="compile", seconds=0.2)
    finished = decode_event(PASSED.read_bytes().splitlines()[-1])
    assert isinstance(finished, Finished)
    result = msgspec.structs.replace(finished.result, verdict=Verdict.COMPILE_ERROR, failure=failure)
    told = [lines_of(event, Verdict.COMPILE_ERROR) for event in (ended, Finished(run_id="r", sha256="", result=result))]
    assert told == [[], []]


def test_another_verdict_at_the_end_is_told() -> None:
    finished = decode_event(PASSED.read_bytes().splitlines()[-1])
    assert isinstance(finished, Finished)
    (line,) = lines_of(finished, Verdict.WRONG_RESULT)
    assert line.text.startswith("finished: PASS")


def test_the_message_of_an_exception_is_one_line_above_its_traceback() -> None:
    traceback = 'Traceback (most recent call last):\n  File "kernel.py", line 3, in solution'
    text = f"ValueError: no\n\n{traceback}\nValueError: no\n"
    message = "an exception ended solution(): ValueError: no"
    failure = Failure(phase="check", message=message, advice="", rank=1, line=3, text=text)
    checked = Checked(run_id="r", verdict=Verdict.CRASH, seconds=0.3, failure=failure)
    assert [line.text for line in lines_of(checked)] == [message, traceback, "CRASH after 0.30 s"]
