"""`pkb-arena board` from a sweep's journal, in every form. People check the look of its plots."""

import csv
import json
import time
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from forked_programs import CommandLine, answer_of, fails
from stored_runs import cell_result, record

from arena.machine.facts import Machine
from arena.models.budget import Spent
from arena.paths import Paths
from arena.sweep.journal import SweepJournal
from arena.sweep.records import Cell, CellResult, SweepPlan, SweepSession
from sandbox.protocol.events import Setting

HERE = Machine("8 × NVIDIA H200", "580.1", "2.9", "NCCL 2.27")
ELSEWHERE = Machine("a small box", "", "2.9", "gloo")


def result(player: str, slug: str, number: int, verdict: str, machine: Machine = HERE, attempt: int = 1) -> CellResult:
    setting = Setting("", "tiny", {"M": 8}, 2, "cpu", "float32")
    cell = Cell(slug=slug, setting=setting, player=player, attempt=attempt, catalogue="v")
    return cell_result(
        cell,
        verdict,
        key=cell.key(f"hash {attempt}", machine.digest),
        problem_id=number,
        sha256=f"hash {attempt}",
        machine=machine.digest,
        spent=Spent(usd=0.5),
        report=record("r", player, 2.0) if verdict == "PASS" else None,
    )


@pytest.fixture
def sweep(paths: Paths) -> Path:
    """A sweep of two players on two machines."""
    journal = SweepJournal(paths.sweeps / "spring.jsonl", "spring")
    plan = SweepPlan(players=["house", "model:<b>m</b>"], problems=["allreduce", "allgather"])
    journal.append(SweepSession(at=time.time(), plan=plan, machines=[HERE, ELSEWHERE], arena="0"))
    for number, slug in ((1, "allreduce"), (2, "allgather")):
        journal.append(result("house", slug, number, "PASS"))
        journal.append(result("model:<b>m</b>", slug, number, "PASS" if number == 1 else "WRONG_RESULT"))
        journal.append(result("model:<b>m</b>", slug, number, "HARNESS_ERROR", attempt=2))
        journal.append(result("house", slug, number, "WRONG_RESULT", ELSEWHERE))
    again = result("house", "allgather", 2, "WRONG_RESULT")
    cell = msgspec.structs.replace(again.cell, catalogue="w")  # the kernel's file and the problem have changed
    journal.append(msgspec.structs.replace(again, key=cell.key("other", HERE.digest), cell=cell, sha256="other"))
    journal.close()
    return journal.path


def test_json_has_machines_apart_and_the_published_beside(pkb_arena: CommandLine, sweep: Path) -> None:
    board = answer_of(pkb_arena("board", "--json"))
    cards = {
        (card["player"], board["machines"][card["place"]["machine"]]): card
        for card in board["scores"]
        if card["scope"] == "all"
    }
    assert len(cards) == 3
    here = cards["house", str(HERE)]
    assert (here["problems"], here["solved"], here["pass_1"]["value"]) == (2, 1, 0.5)
    assert cards["house", str(ELSEWHERE)]["solved"] == 0
    model = cards["model:<b>m</b>", str(HERE)]
    assert (model["attempts"], model["solved"], model["usd"]) == (2, 1, 1.0)
    published = {row["name"]: row for row in board["published"]}
    assert published["GPT-5.5"]["pass_k"]["value"] == pytest.approx(36 / 87)
    assert published["Gemini 3 Pro + mini-SWE-agent"]["kind"] == "agent"


def test_text_markdown_and_csv(pkb_arena: CommandLine, sweep: Path) -> None:
    text = pkb_arena("board", "--sweep", "spring").stdout
    assert "8 × NVIDIA H200" in text
    assert "published model" in text
    assert "50 % [9, 91]" in text
    assert "|---|" in pkb_arena("board", "--markdown").stdout
    rows = list(csv.DictReader(pkb_arena("board", "--csv").stdout.splitlines()))
    assert {row["origin"] for row in rows} == {"here", "published"}
    house = next(row for row in rows if row["player"] == "house" and row["scope"] == "all")
    assert 0 <= float(house["pass_1_low"]) < float(house["pass_1_high"]) <= 1
    assert "inf" not in {cell for row in rows for cell in row.values()}  # an end that is not known is empty
    by = pkb_arena("board", "--by", "category").stdout
    assert "collective  house" in by


@pytest.mark.slow
def test_page_is_self_contained_and_names_are_text(pkb_arena: CommandLine, sweep: Path, tmp_path: Path) -> None:
    done = pkb_arena("board", "--html", "b.html", "--svg", "b.svg")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    page = (tmp_path / "b.html").read_text()
    assert "model:<b>m</b>" not in page
    assert "model:&lt;b&gt;m&lt;/b&gt;" in page
    assert [f">{tick}×</text>" in page for tick in (0.5, 1, 2, 4)] == [True, True, True, False]
    assert page.count('<span class="house">●\u00a0</span>house') == 3  # in the legend, and on two machines
    categories = [part.partition("</table>")[0] for part in page.split("By category")[1:]]
    assert [(each.count("<tr"), "sorts" in each) for each in categories] == [(3, True), (2, True)]

    class Links(HTMLParser):
        found: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found += [f"{tag} {value}" for name, value in attrs if name in ("src", "href") and value]
            assert tag not in ("link", "img", "iframe")

    parser = Links()
    parser.feed(page)
    assert all("#" in link for link in parser.found)  # references within the plots
    assert ElementTree.parse(tmp_path / "b.svg").getroot().tag.endswith("svg")


@pytest.mark.slow
def test_a_crafted_name_makes_no_file_unreadable(pkb_arena: CommandLine, paths: Paths, tmp_path: Path) -> None:
    evil = "model:\x1b]0;x\x07\x00\x0b<$\\frac$\u202e\x9b2J"
    journal = SweepJournal(paths.sweeps / "evil.jsonl", "evil")
    plan = SweepPlan(players=[evil], problems=["allreduce"])
    journal.append(SweepSession(at=time.time(), plan=plan, machines=[HERE], arena="0"))
    journal.append(result(evil, "allreduce", 1, "PASS"))
    journal.close()
    done = pkb_arena("board", "--html", "b.html", "--svg", "b.svg")
    assert done.returncode == 0, done.stderr
    ElementTree.parse(tmp_path / "b.svg")
    texts = [(tmp_path / name).read_text() for name in ("b.html", "b.svg")]
    texts += [pkb_arena("board", *how).stdout for how in ([], ["--csv"], ["--markdown"], ["--json"])]
    for text in texts:
        assert not [c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c == "\u202e"]


def test_what_is_not_there_says_so(pkb_arena: CommandLine, home: Path) -> None:
    empty = pkb_arena("board")
    assert empty.returncode == 0
    assert "GPT-5.5" in empty.stdout
    assert not (home / "data").exists()
    fails(pkb_arena("board", "--svg", "x.svg"), 3, "nothing to draw")


def test_damaged_files_are_named_and_hide_nothing_else(pkb_arena: CommandLine, sweep: Path, paths: Paths) -> None:
    whole = pkb_arena("board").stdout
    damaged = sweep.with_name("autumn.jsonl")
    lines = sweep.read_bytes().splitlines(keepends=True)
    damaged.write_bytes(b"".join([*lines[:2], b"{}\n", *lines[2:]]))
    paths.duels.mkdir(parents=True)
    (paths.duels / "notes.jsonl").write_text("no duel\n")
    paths.database.mkdir()  # a folder in the place of the index
    done = pkb_arena("board")
    assert (done.returncode, done.stdout) == (3, whole)
    for words in (
        f"{damaged}: line 3 is no line of a sweep's journal; the board is without this sweep",
        "remove that line, or move the file elsewhere",
        f"{paths.duels / 'notes.jsonl'}: this is no duel's journal; the ratings are without it",
        "the board is without single runs",
    ):
        assert done.stderr.count(words) == 1, done.stderr
    assert "Traceback" not in done.stderr
    as_json = pkb_arena("board", "--json")
    assert as_json.returncode == 3
    assert len(json.loads(as_json.stdout)["left_out"]) == 3
    damaged.unlink()
    # The damaged file of a duel is still there.
    assert pkb_arena("board", "--sweep", "spring", "--json").returncode == 3
