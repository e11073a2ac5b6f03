"""Recordings of a journal as an asciicast and as an animated picture."""

import itertools
import json
from pathlib import Path
from xml.etree import ElementTree

import pyte
import pytest
from forked_programs import CommandLine
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from arena.records.header import read_header
from screens.record import LONGEST_GAP_S, STEP_S, told
from screens.record.recording import Recording, animated_svg, asciicast

RECORDINGS = Path(__file__).parent / "recordings"
SVG = "{http://www.w3.org/2000/svg}"


def made(*pictures: tuple[float, list[str]]) -> Recording:
    recording = Recording(12, 2, "a <title>")
    for at, rows in pictures:
        recording.add(at, [Strip([Segment(row.ljust(12), Style(color="#ff0000"))]) for row in rows])
    recording.length += 1.0
    return recording


RECORDING = made((0.0, ["one", "same"]), (1.0, ["one", "same"]), (2.0, ["two & <3", "same"]), (3.0, ["one", "same"]))


def test_what_stays_the_same_is_kept_once() -> None:
    assert [at for at, _ in RECORDING.frames] == [0.0, 2.0, 3.0]
    assert [(start, end) for start, end, _ in RECORDING.row_spans(0)] == [(0.0, 2.0), (2.0, 3.0), (3.0, 4.0)]
    assert [(start, end) for start, end, _ in RECORDING.row_spans(1)] == [(0.0, 4.0)]


def test_an_asciicast_plays_every_picture() -> None:
    head, *lines = map(json.loads, asciicast(RECORDING, 1_700_000_000.5))
    assert (head["version"], head["width"], head["height"], head["timestamp"]) == (2, 12, 2, 1_700_000_000)
    screen = pyte.Screen(12, 2)
    stream = pyte.Stream(screen)
    shown = []
    for at, kind, text in lines:
        assert kind == "o"
        stream.feed(text)
        shown.append((at, screen.display[0].rstrip(), screen.display[1].rstrip()))
    assert shown == [(0.0, "one", "same"), (2.0, "two & <3", "same"), (3.0, "one", "same"), (4.0, "one", "same")]


def test_animated_picture_shows_each_row_while_it_stands() -> None:
    root = ElementTree.fromstring(animated_svg(RECORDING, "#ffffff", "#000000"))
    assert not [node for node in root.iter() if "href" in "".join(node.attrib)]  # no external files
    moving = {
        group.find(f"{SVG}text").text: (group.get("visibility"), group.find(f"{SVG}animate").attrib)
        for group in root.iter(f"{SVG}g")
    }
    assert set(moving) == {"one", "two & <3"}
    assert moving["one"][0] == "visible"  # the last picture, for viewers without animation
    assert moving["two & <3"][0] == "hidden"
    assert moving["two & <3"][1]["values"].split(";") == ["hidden", "visible", "hidden"]
    assert moving["two & <3"][1]["keyTimes"].split(";") == ["0.0000", "0.5000", "0.7500"]
    assert "same" in [node.text for node in root.iter(f"{SVG}text")]


def test_long_pauses_are_shortened_and_time_goes_forward() -> None:
    pictures = told([10.0, 10.01, 70.0, 70.5, 71.0], 1.0)
    assert pictures[0] == (0.0, 10.0)
    assert pictures[-1][1] == 71.0
    assert LONGEST_GAP_S < pictures[-1][0] < LONGEST_GAP_S + 1.5
    for (at, moment), (later, after) in itertools.pairwise(pictures):
        assert later - at >= STEP_S * 0.5
        assert after > moment
    assert told([], 1.0) == [(0.0, 0.0)]
    assert told([3.0], 20.0) == [(0.0, 3.0)]


@pytest.mark.slow
def test_run_is_recorded_as_kernel_screen_shows_it(pkb_arena: CommandLine, tmp_path: Path, made_journal: Path) -> None:
    done = pkb_arena("replay", str(made_journal), "--record", "run.svg", "--speed", "20")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "run.svg").read_text()
    ElementTree.fromstring(text)
    assert "PASS" in text
    assert read_header(made_journal).kernel_name in text
    assert "pkb-record" not in text  # the temporary folder of the recorder
    assert str(tmp_path) not in text


@pytest.fixture
def made_journal(pkb_arena: CommandLine, tmp_path: Path) -> Path:
    """The journal of a recorded run with the header that the recording lacks."""
    lines = (RECORDINGS / "told.jsonl").read_bytes().splitlines()
    started = next(json.loads(line) for line in lines if b'"run_started"' in line)
    header = {
        "type": "run", "run_id": started["run_id"], "created": 1.0, "problem_id": 13, "slug": "gemm_allreduce",
        "category": "tensor", "player": "you", "kernel_name": "mine.py", "kernel_path": "", "sha256": started["sha256"],
        "source": "import torch\n", "setting": started["setting"],
    }  # fmt: skip
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"\n".join([json.dumps(header).encode(), *lines]) + b"\n")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["--record", "duel.mp4"], "duel.mp4", 2),
        (["--record", "duel.svg", "--size", "10x3"], "10x3", 2),
        (["--record", "duel.svg", "--theme", "plaid"], "plaid", 2),
        (["--record", "nowhere/duel.svg", "--speed", "20"], "nowhere: there is no such folder", 3),
    ],
)
def test_what_cannot_be_recorded_says_why(pkb_arena: CommandLine, arguments: list[str], words: str, code: int) -> None:
    done = pkb_arena("replay", str(RECORDINGS / "duel.jsonl"), *arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert done.stdout == ""
