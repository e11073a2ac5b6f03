"""Foreign text controls no terminal and no file: not by escape sequences, control characters or direction marks."""

import json
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.segment import Segment
from rich.style import Style
from stored_runs import header as run_header
from textual.strip import Strip

from arena.cli.output import complain, green, print_json, print_line, red, rendered
from arena.words.untrusted_text import escaped_json, masked, printable
from sandbox.protocol.events import encode
from screens.record.recording import Recording, animated_svg, asciicast

SEQUENCES = (
    "\x1b[2J", "\x1b]0;title\x07", "\x1b]52;c;eA==\x1b\\", "\x9b31m", "\x1bP+q", "\x1b[8mhidden", "\x1b",
    "\x07", "\b", "\r", "\r\n",
    "\u202e", "\u2066", "\u061c", "\u2028", "\x85", "\ufdd0", "\ufdd3", "\ufffe", "\ud800",
    "\U000e0041", "\t", "\n", "]]>", "<&'\"$x$",
)  # fmt: skip
TEXT = st.lists(st.one_of(st.text(st.characters(), max_size=8), st.sampled_from(SEQUENCES)), max_size=8).map("".join)
MANY = settings(max_examples=100, deadline=None)
COLOURS = (click.style("", fg="green", reset=False), click.style("", fg="red", reset=False), "\x1b[1m", "\x1b[0m")


def draws(text: str) -> list[str]:
    """The characters that do more than show a glyph."""
    return [
        c
        for c in text
        if (unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in "\n\t")
        or unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        or c in "\u200e\u200f\u061c\ufffe\uffff"
    ]


@given(TEXT)
@MANY
def test_shown_text_draws_nothing_and_keeps_columns(text):
    assert draws(printable(text)) == draws(masked(text)) == []
    assert printable(printable(text)) == printable(text)
    assert len(masked(text)) == len(text)


@given(TEXT, TEXT)
@MANY
def test_a_line_has_no_colours_but_our_own(text, other):
    line = f"{green('✓ PASS', bold=True)} {text} {red(other)}"
    assert draws(rendered(line)) == []
    left = rendered(line, colour=True)
    assert left.endswith("\x1b[0m")
    for code in COLOURS:
        left = left.replace(code, "")
    assert draws(left) == []


@given(TEXT)
@MANY
def test_json_says_the_same_with_escapes(text):
    if any("\ud800" <= c <= "\udfff" for c in text):
        return  # JSON cannot contain such text
    raw = json.dumps([text], ensure_ascii=False)
    assert json.loads(escaped_json(raw)) == [text]
    assert draws(escaped_json(raw)) == []


@pytest.mark.parametrize("text", SEQUENCES)
def test_nothing_draws_on_stdout_and_stderr(capsys, text):
    print_line(f"a {text} b")
    complain(f"a {text} b", f"c {text} d")
    if text != "\ud800":
        print_json({"text": f"a {text} b"})
    said = capsys.readouterr()
    assert draws(said.out + said.err) == []
    assert "a " in said.out


@given(TEXT, TEXT)
@settings(max_examples=60, deadline=None)
def test_recordings_can_be_read_and_draw_nothing_else(title, text):
    recording = Recording(20, 1, title)
    recording.add(0.0, [Strip([Segment(text, Style(color="#ff0000"))])])
    recording.length = 1.0
    drawn = animated_svg(recording, "#ffffff", "#000000")
    ElementTree.fromstring(drawn)
    assert draws(drawn) == []
    for line in asciicast(recording, 0.0):
        value = json.loads(line)
        line.encode()
        if isinstance(value, dict):
            assert draws(value["title"]) == []


EVIL = "\x1b]0;owned\x07\x1b[2Jname\u202e\x9b31m\x85"


def test_a_replay_prints_no_escapes(pkb_arena, tmp_path: Path):
    header = run_header(
        f"r{EVIL}",
        f"# {EVIL}\ndef solution(tensor):\n\treturn tensor\n",
        EVIL,
        slug=f"allreduce{EVIL}",
        kernel_name=EVIL,
        kernel_path=EVIL,
    )
    journal = tmp_path / "evil.jsonl"
    journal.write_bytes(encode(header) + b"\n")
    for arguments in ([], ["--source"], ["--json"]):
        done = pkb_arena("replay", str(journal), *arguments)
        assert done.returncode == 0, done.stderr
        assert draws(done.stdout + done.stderr) == []
    assert "\treturn tensor" in pkb_arena("replay", str(journal), "--source").stdout
