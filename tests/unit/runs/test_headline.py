"""Every headline names its clock, during a run and at its end."""

from pathlib import Path

import msgspec
import pytest

from arena.cli.run import RunProgress
from arena.duel.card import final_words, speed_words
from arena.duel.events import DuelEnded, DuelHeader, Finalist
from arena.words.headline import advice_words, brief_words, by_clock, detectable_words, headline_of, headline_so_far
from sandbox.protocol.events import AnyEvent, Finished, Interval, Speedup, Timed, decode_event
from sandbox.protocol.verdict import Verdict

ROOT = Path(__file__).parents[3]
RECORDINGS = ROOT / "tests" / "ui" / "recordings"
NOISY, EVEN, FAST = Interval(1.1, 0.6, 2.0), Interval(1.0, 0.99, 1.01), Interval(1.5, 1.4, 1.6)


def recorded(name: str) -> list[AnyEvent]:
    return [decode_event(line) for line in (RECORDINGS / f"{name}.jsonl").read_bytes().splitlines()]


def sample(call: Interval, device: Interval | None) -> Timed:
    return Timed(run_id="r1", round=3, rounds=9, calls=4, baseline_us=9.0, contender_us=8.0, call=call, device=device)


@pytest.mark.parametrize(
    ("call", "device", "clock", "outcome", "median"),
    [
        (FAST, EVEN, "call", "faster", 1.5),
        (NOISY, EVEN, "device", "even", 1.0),
        (Interval(1.005, 0.99, 1.02), Interval(1.02, 1.005, 1.04), "device", "faster", 1.02),
        (EVEN, FAST, "call", "even", 1.0),
        (NOISY, NOISY, "call", "too noisy", 1.1),
        (NOISY, None, "call", "too noisy", 1.1),
    ],
)
def test_live_headline_is_by_clock_that_can_tell(call, device, clock, outcome, median):
    headline = headline_so_far(sample(call, device))
    assert (headline.clock, headline.outcome, headline.speedup.median) == (clock, outcome, median)


def test_result_is_shown_by_clock_that_it_names():
    (end,) = [event for event in recorded("pass") if isinstance(event, Finished)]
    both = Speedup(call=NOISY, device=EVEN)
    result = msgspec.structs.replace(end.result, speedup=both, clock="device", outcome="even")
    headline = headline_of(result)
    assert (headline.speedup, headline.where) == (EVEN, "device time")
    assert by_clock(both, "call") is NOISY
    assert headline_of(msgspec.structs.replace(result, speedup=None)) is None


def test_both_clocks_say_their_limits_and_advice():
    assert detectable_words(Speedup(call=FAST, device=EVEN)) == (
        "smallest detectable difference: 11 % (end-to-end), 1.6 % (device time)"
    )
    assert detectable_words(Speedup(call=FAST, device=None)) == "smallest detectable difference: 11 % (end-to-end)"
    assert detectable_words(None) == ""
    assert advice_words("more rounds, a quieter machine", "F7") == "measure longer (F7), a quieter machine"
    assert advice_words("", "F7") == ""


def test_live_line_names_clock_and_end():
    progress = RunProgress(most_s=4.0)
    for event in recorded("timing"):
        progress.event(event)
    line = progress._line()
    assert "faster end-to-end" in line
    assert line.endswith("goes on up to 4 s")


def test_a_duel_names_the_clock_of_its_final():
    events = (RECORDINGS / "duel.jsonl").read_bytes().splitlines()
    header = msgspec.json.decode(events[0], type=DuelHeader)
    side = Finalist(1, "ab", Verdict.PASS, "", 9.0, FAST, "device")
    ended = DuelEnded(winner="left", reason="", speedup=FAST, rounds=9, left=side, right=side, clock="device")
    assert "▲ 1.50× [1.40, 1.60] device time, 9" in final_words(header, ended)
    assert "[1.40, 1.60], 9" in final_words(header, msgspec.structs.replace(ended, clock=""))
    assert speed_words(Interval(1.002, 1.001, 1.003), "call") == "▲ 1.00× [1.001, 1.003] end-to-end"
    assert speed_words(Interval(50.0, 0.78, 50.0), "call") == "~ [0.78, 50.00] end-to-end"


def test_noise_has_no_figure_and_even_is_same() -> None:
    assert brief_words(1.5, "faster") == "1.50× faster"
    assert brief_words(1.0, "even") == "1.00× same speed"
    assert brief_words(1.9, "too noisy") == "too noisy"
