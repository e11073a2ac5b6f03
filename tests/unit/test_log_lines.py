"""Lines of the log pane for the events of a run."""

from pathlib import Path

import msgspec

from sandbox.protocol.events import Finished, Log, decode_event
from screens.kernel.log_lines import lines_of

PASSED = Path(__file__).parent.parent / "ui" / "recordings" / "pass.jsonl"


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
