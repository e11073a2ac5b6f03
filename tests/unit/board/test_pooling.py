"""Measurements of the same code count as one, in sweeps and in single runs; and both boards have the same rows."""

import csv
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from forked_programs import answer_of
from stored_runs import cell_result, header, journal_of, result

from arena.board.gathering import gather
from arena.board.scorecard import outcomes
from arena.machine.facts import this_machine
from arena.paths import Paths
from arena.records.code_hash import code_hash
from arena.records.header import RunHeader
from arena.records.index import Store
from arena.records.run_record import record_of
from arena.records.voids import NO_VOIDS
from arena.sweep.grid import SweepGrid
from arena.sweep.journal import SweepJournal
from arena.sweep.records import Cell, CellResult
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Interval, Microseconds, Result, Roofline, Setting
from sandbox.protocol.verdict import Verdict

SETTING = Setting("", "tiny", {"M": 8}, 2, "cpu", "float32")
KERNEL = "x = 1\n"


def run(speedup: float, source: str, player: str, run_id: str, **more: object) -> tuple[RunHeader, Result]:
    begun = header(run_id, source, player, sha256="", setting=SETTING, **{"machine": this_machine("cpu").digest} | more)
    ended = result(
        call=Interval(speedup, 0.92 * speedup, 1.08 * speedup),
        contender_us=Microseconds(call=10.0, device=None),
        roofline=Roofline(bound_us=5.0, percent=50.0, limiter="link"),
        outcome="faster",
        clock="call",
        rounds=9,
    )
    return begun, ended


def attempt(number: int, speedup: float, source: str) -> CellResult:
    cell = Cell(slug="allreduce", setting=SETTING, player="model:m", attempt=number, catalogue="v")
    return cell_result(
        cell,
        at=time.time(),
        key=cell.key(source, "m"),
        sha256=source,
        code=code_hash(source),
        report=record_of(*run(speedup, source, "model:m", f"r{number}")),
    )


def test_sweep_attempts_with_same_code_share_one_speed(paths: Paths) -> None:
    journal = SweepJournal(paths.sweeps / "spring.jsonl", "spring")
    lines = [
        attempt(1, 1.2, KERNEL),
        attempt(2, 3.0, "# lucky\n" + KERNEL),
        attempt(3, 1.25, KERNEL + "# again\n"),
        attempt(4, 1.5, "x = 2\n"),
    ]
    grid = SweepGrid()
    for line in lines:
        journal.append(line)
        grid.apply(line)
    journal.close()
    assert sorted(outcome.speedup or 0.0 for outcome in outcomes(journal.path, NO_VOIDS)) == [1.25, 1.25, 1.25, 1.5]
    best = grid.squares["allreduce", "model:m"].best
    assert (best.attempt, best.speedup) == (4, 1.5)


def test_command_line_board_matches_apps_rows(
    pkb_arena: Callable[..., "subprocess.CompletedProcess[str]"], paths: Paths
) -> None:
    store = Store(paths.database, paths.runs)
    for number, player in enumerate(("you", "house", "model:m", "mcp")):
        store.record(record_of(*run(1.2, KERNEL, player, f"usual-{number}")))
        store.record(record_of(*run(3.0, "# lucky\n" + KERNEL, player, f"lucky-{number}")))
    players = store.players()
    store.close()
    cards = [card for card in answer_of(pkb_arena("board", "--json"))["scores"] if card["scope"] == "all"]
    assert sorted(card["player"] for card in cards) == players
    assert {card["place"]["machine"] for card in cards} == {this_machine("cpu").digest}
    assert {card["player"]: card["kind"] for card in cards}["mcp"] == "agent"
    assert {round(card["speedup"]["value"], 6) for card in cards} == {2.1}
    assert "machine not recorded" not in pkb_arena("board").stdout
    rows = [row for row in csv.DictReader(pkb_arena("board", "--csv").stdout.splitlines()) if row["origin"] == "here"]
    assert {(row["speedup"][:3], row["speedup_low"], row["speedup_high"]) for row in rows} == {("2.1", "", "")}


def test_other_sizes_and_missing_verdicts_are_no_attempts(paths: Paths) -> None:
    alone, result = run(1.2, KERNEL, "you", "alone")
    elsewhere = msgspec.structs.replace(SETTING, world=1)
    store = Store(paths.database, paths.runs)
    store.record(record_of(alone, result))
    store.record(record_of(msgspec.structs.replace(alone, run_id="b", setting=elsewhere, other_than="alone"), result))
    broken = msgspec.structs.replace(result, verdict=Verdict.HARNESS_ERROR, speedup=None, outcome="")
    store.record(record_of(msgspec.structs.replace(alone, run_id="c", player="anna"), broken))
    store.close()
    assert [(card.player, card.place.world) for card in gather(paths, load_catalogue([])).cards] == [("you", 2)]


@pytest.mark.slow
def test_every_form_of_board_has_scores_against_bound(
    pkb_arena: Callable[..., "subprocess.CompletedProcess[str]"], paths: Paths, tmp_path: Path
) -> None:
    """The gap closed is (baseline - kernel) / (baseline - bound): (1.2 - 1) / (1.2 - 0.5), in sweeps and in runs."""
    swept = msgspec.structs.replace(attempt(1, 1.2, KERNEL), machine=this_machine("cpu").digest)
    journal_of(paths.sweeps / "spring.jsonl", swept)
    store = Store(paths.database, paths.runs)
    store.record(record_of(*run(1.2, KERNEL, "you", "r1")))
    store.close()
    board = json.loads(pkb_arena("board", "--json", "--html", "b.html").stdout)
    for scope in ("all", "category:collective"):
        cards = [card for card in board["scores"] if card["scope"] == scope]
        assert [card["player"] for card in cards] == ["model:m", "you"]
        for card in cards:
            assert (card["percent"]["value"], card["no_roofline"]) == (pytest.approx(50.0), 0)
            assert card["gap_closed"]["value"] == pytest.approx(0.2 / 0.7)
    rows = [row for row in csv.DictReader(pkb_arena("board", "--csv").stdout.splitlines()) if row["origin"] == "here"]
    assert {round(float(row["gap_closed"]), 3) for row in rows} == {0.286}
    assert all(float(row["gap_closed_low"]) < 0.286 < float(row["gap_closed_high"]) for row in rows)
    by_category = [pkb_arena("board", *form, "--by", "category").stdout for form in ([], ["--markdown"])]
    for text in (*by_category, (tmp_path / "b.html").read_text().partition("By category</h3>")[2]):
        assert "29 % " in text
        assert "gap closed" in text
        assert "collective" in text


def test_a_sweeps_attempts_are_not_counted_again(paths: Paths) -> None:
    """The runs of a sweep are in the index of results as well."""
    swept = msgspec.structs.replace(attempt(1, 1.2, KERNEL), machine=this_machine("cpu").digest)
    journal_of(paths.sweeps / "spring.jsonl", swept)
    store = Store(paths.database, paths.runs)
    store.record(record_of(*run(1.2, KERNEL, "model:m", "r1")))
    store.close()
    assert [card.attempts for card in gather(paths, load_catalogue([])).cards] == [1]


def test_noisy_sweep_does_not_hide_best_house_run(paths: Paths) -> None:
    """As in the app. Attempts of a model are counted as the sweep measured them."""
    here = this_machine("cpu").digest
    journal = SweepJournal(paths.sweeps / "short.jsonl", "short")
    store = Store(paths.database, paths.runs)
    for number, player in enumerate(("house", "model:m")):
        swept = attempt(number, 1.0, KERNEL)
        assert swept.report is not None
        report = msgspec.structs.replace(swept.report, outcome="too noisy")
        cell = msgspec.structs.replace(swept.cell, player=player)
        journal.append(msgspec.structs.replace(swept, key=player, cell=cell, report=report, machine=here))
        store.record(record_of(*run(3.0, KERNEL, player, f"single-{number}", machine=here)))
    best = store.standings("house")[1].best
    journal.close()
    store.close()
    cards = {card.player: card for card in gather(paths, load_catalogue([])).scores if card.scope == "all"}
    house, model = cards["house"], cards["model:m"]
    assert house.speedup.value == pytest.approx(best.median) == pytest.approx(3.0)
    assert (house.attempts, house.solved, house.faster, house.noisy) == (1, 1, 1, 0)
    assert (model.attempts, model.faster, model.noisy) == (1, 0, 1)
