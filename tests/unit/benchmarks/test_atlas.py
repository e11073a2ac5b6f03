"""The atlas of two problems, one of them measured: links, keys to sort by, no address outside, and the stored figures."""

import re
from pathlib import Path

import click.testing
import msgspec
import pytest
from stored_runs import cell_result, journal_of, record

from arena.records.code_hash import code_hash
from arena.records.run_record import RunRecord
from arena.sweep.records import Cell, CellResult
from benchmarks.atlas import atlas, command
from problems.catalogue import Catalogue, load_catalogue
from sandbox.protocol.events import Interval, Microseconds, Roofline, Setting, Speedup
from sandbox.protocol.verdict import Verdict

CATALOGUE = Catalogue(load_catalogue().problems[:2])
SETTING = Setting("", "production", {"M": 8}, 2, "cuda", "bfloat16")


def measured(**more: object) -> CellResult:
    timed: dict[str, object] = {
        "slug": "allreduce", "speedup": Speedup(call=Interval(1.5, 1.25, 1.75), device=Interval(1.2, 0.5, 3.0)),
        "outcome": "faster", "clock": "call", "told": "1.50× faster end-to-end", "roofline": Roofline(5.0, 62.5, "link"),
        "baseline_us": Microseconds(30.0, 24.0), "contender_us": Microseconds(20.0, 20.0),
    }  # fmt: skip
    found: RunRecord = record("r", "house", **(timed | more))
    cell = Cell(slug="allreduce", setting=SETTING, player="house", attempt=1, catalogue="v")
    return cell_result(cell, str(found.verdict), report=found)


def test_pages_link_each_other_and_nothing_else() -> None:
    pages = atlas(CATALOGUE, [measured()], {"m": "two GPUs"})
    assert pages.keys() == {"index.html", "01_allreduce.html", "02_allgather.html", "speedups.svg"}
    for page in pages.values():
        addresses = re.findall(r"(?:href|src|action)=\"([^\"]*)\"|url\(([^)]*)\)|@import (\S+)", page)
        assert {"".join(address) for address in addresses} <= pages.keys()
    assert "default-src 'none'" in re.sub("&#x27;", "'", pages["index.html"])


def test_pages_tell_sources_that_have_changed() -> None:
    now = code_hash(CATALOGUE.problems[0].house_source or "")
    for result, times in ((measured(), 2), (msgspec.structs.replace(measured(), code=now), 0)):
        assert sum(page.count("changed since") for page in atlas(CATALOGUE, [result], {}).values()) == times


@pytest.mark.parametrize("more", [{"speedup": None}, {"verdict": Verdict.CRASH}, {"outcome": "too noisy"}])
def test_result_without_a_claim_has_no_key(more: dict[str, object]) -> None:
    row = re.findall(r"<tr>(<td.*?)</tr>", atlas(CATALOGUE, [measured(**more)], {})["index.html"])[0]
    assert 'value="1.5"' not in row
    assert "not measured yet" not in row


def test_kept_figures_make_the_same_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.atlas.load_catalogue", lambda: CATALOGUE)
    first = journal_of(tmp_path / "sweep.jsonl", measured())
    kept, runner = tmp_path / "kept.jsonl", click.testing.CliRunner()
    for number, source in enumerate((first, str(kept))):
        done = runner.invoke(command, [source, "--output", str(tmp_path / str(number)), "--keep", str(kept)])
        assert done.exit_code == 0, done.output
    for page in (tmp_path / "0").iterdir():
        assert (tmp_path / "1" / page.name).read_text() == page.read_text()
