"""`python -m benchmarks atlas`: static pages of all problems, with their house kernels and what sweeps measured of them."""

import ast
import math
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click
import msgspec
from markdown_it import MarkdownIt

from arena.board.scorecard import machines_of
from arena.cli.output import print_line
from arena.export.pages import marked
from arena.paths import NAMED, make_folder, writing
from arena.records.code_hash import code_hash
from arena.records.json_lines import encode
from arena.records.report_text import speed_span, told_parts, verdict_span, where_words
from arena.sweep.records import CellResult, SweepOpened, SweepPlan, SweepSession
from arena.words.headline import TOO_NOISY, WHERE, by_clock
from arena.words.markup import STYLE, Markup, code, document, element, keyed, table
from arena.words.untrusted_text import printable
from arena.workspace.named_kernels import HOUSE
from benchmarks.sweep_table import newest, summary
from problems.catalogue import Catalogue, load_catalogue
from problems.specification import PRESETS, Problem
from sandbox.timing.conclusion import ends
from sandbox.timing.interval import outcome

STORED = sorted(Path(__file__).parent.glob("*/house.jsonl"))
"""Journals with the figures of house kernels, as `--keep` writes them."""
_NOT_SHOWN = (
    "error seconds paper_rule jail sealed advice rounds labels beside energy kernel_name preset_sizes versus origin other_than "
    "machine player created"
)
"""Fields of a report that no page shows; they have defaults."""
NOT_YET = "not measured yet"
_HEADS = ("end-to-end", "device time", "of bound", "limited by")
_ABOUT = (
    "The house kernels of pkb-arena for the problems of ParallelKernelBench, measured against PyTorch with NCCL. "
    "Each page has the problem, the figures and the source."
)
_HEADS_MEAN = (
    "Speedups end-to-end and by device time; brackets: 99 % intervals. Of bound: least time of a call on this machine, as a "
    "share of the kernel's time. Limited by: what sets that bound. A click on a heading sorts."
)
_DRAWN = (
    "Filled: end-to-end. Hollow: by device time, where end-to-end time is too noisy. Log scale. Kernels that are not measured "
    "yet, or whose times are too noisy, are not drawn."
)
_PLOT, _TOP, _STEP, _LEFT = 300, 16, 12, 34
"""Heights of the plot and of its upper margin, widths of a column and of the left margin."""


class Measured(NamedTuple):
    """The house kernels in one setting."""

    words: str
    """ "production, 2 ranks"."""
    results: dict[str, CellResult]
    """The newest result of each problem, by slug."""


@click.command()
@click.argument("journals", nargs=-1, type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default="docs/atlas",
    show_default=True,
    help="A folder.",
)
@click.option(
    "--keep", type=click.Path(path_type=Path, dir_okay=False), help="Also write the figures into this journal."
)
def command(journals: tuple[Path, ...], output: Path, keep: Path | None) -> None:
    """Write a page for each problem: card, house kernel, its figures and its source; and an index that can be sorted.

    The figures are those of the player house in these JOURNALS of sweeps, the newest for each setting; without JOURNALS those
    that are stored in this folder.
    """
    chosen = journals or tuple(STORED)
    found = [result for result in newest(chosen) if result.cell.player == HOUSE and result.report is not None]
    machines = {digest: machine for path in chosen for digest, machine in machines_of(path).items()}
    if keep is not None:
        plan = SweepPlan(players=[HOUSE], problems=[])
        session = SweepSession(plan=plan, machines=list(machines.values()), arena="")
        lines = [encode(line) for line in (SweepOpened(name="house"), session, *map(_brief, found))]
        keep.write_bytes(b"".join(line + b"\n" for line in lines))
    pages = atlas(load_catalogue(), found, {digest: str(machine) for digest, machine in machines.items()})
    make_folder(output, NAMED)
    with writing(output, NAMED):
        for name, page in pages.items():
            (output / name).write_text(page, encoding="utf-8")
    print_line(f"{output / 'index.html'}: {len(found)} results")


def _brief(result: CellResult) -> dict[str, object]:
    """Returns a line without what no page shows. `newest` reads it."""
    line: dict[str, object] = msgspec.to_builtins(result)
    report = msgspec.to_builtins(result.report)
    return line | {"report": {name: value for name, value in report.items() if name not in _NOT_SHOWN.split()}}


def atlas(catalogue: Catalogue, results: Sequence[CellResult], machines: dict[str, str]) -> dict[str, str]:
    """Returns all pages by file name, and the plot. machines: in words, by the fingerprints in the results."""
    places: dict[tuple[int, int], Measured] = {}
    for result in results:
        setting = result.cell.setting
        words = f"{setting.preset}, {setting.world} rank{'s' * (setting.world > 1)}"
        place = (-PRESETS.index(setting.preset), setting.world)
        places.setdefault(place, Measured(words, {})).results[result.cell.slug] = result
    measured = [places[place] for place in sorted(places)]
    pages = {_file(problem): _page(problem, measured, machines) for problem in catalogue.problems}
    pages["index.html"] = _index(catalogue, measured, machines)
    if measured:
        pages["speedups.svg"] = _plot(max(measured, key=lambda place: len(place.results)), catalogue, alone=True)
    return pages


def _file(problem: Problem) -> str:
    return f"{problem.stem}.html"


def _muted(*words: str) -> Markup:
    return element("p", *words, class_="muted")


def _index(catalogue: Catalogue, measured: Sequence[Measured], machines: dict[str, str]) -> str:
    parts = [
        element("h1", f"Atlas of {len(catalogue.problems)} multi-GPU kernels"),
        element("p", _ABOUT),
        _muted(_HEADS_MEAN),
    ]
    for place in measured or [Measured("no results", {})]:
        rows = [
            (
                keyed(element("a", f"{problem.id} {problem.slug}", href=_file(problem)), problem.id),
                problem.category,
                *_cells(place.results.get(problem.slug)),
            )
            for problem in catalogue.problems
        ]
        found = list(place.results.values())
        older = [str(p.id) for p in catalogue.problems if _is_older(place.results.get(p.slug), p)]
        parts += [
            element("h2", place.words),
            _muted("; ".join(sorted({machines.get(result.machine, "") for result in found}))),
            *(_muted(f"{line} end-to-end") for line in summary(found)),
            *(_muted(f"Sources that have changed since: {ids}") for ids in filter(None, [", ".join(older)])),
        ]
        if found:
            parts += [element("div", _plot(place, catalogue), class_="card"), _muted(_DRAWN)]
        parts.append(element("div", table(("problem", "category", *_HEADS), rows, sorts=True), class_="card"))
    return document("Atlas of multi-GPU kernels", *parts, sorts=True)


def _cells(result: CellResult | None) -> tuple[str, ...]:
    """The cells under `_HEADS`."""
    report = result.report if result is not None else None
    if report is None:
        return (NOT_YET, "", "", "")
    if not report.passed:
        return (marked(verdict_span(report.verdict)), "", "", "")
    speeds = []
    for clock in WHERE:
        speed = by_clock(report.speedup, clock)
        said = "" if speed is None else report.outcome if clock == report.clock else outcome(speed)
        shown = marked(speed_span(speed, said, said=False)) if speed is not None else Markup("–")
        speeds.append(keyed(shown, speed.median) if speed is not None and said != TOO_NOISY else shown)
    roofline = report.roofline if report.outcome != TOO_NOISY else None
    if roofline is None or not math.isfinite(roofline.percent):
        return (*speeds, "–", report.roofline.limiter if report.roofline is not None else "–")
    return (*speeds, keyed(f"{roofline.percent:.0f} %", roofline.percent), roofline.limiter)


def _page(problem: Problem, measured: Sequence[Measured], machines: dict[str, str]) -> str:
    source = problem.house_source or ""
    said = ast.get_docstring(ast.parse(source)) or ""
    first = re.sub(
        r"(?:^|; )(.)", lambda found: f". {found[1].upper()}", said.partition("\n")[0].removeprefix("House kernel: ")
    )
    results = [(place, place.results[problem.slug]) for place in measured if problem.slug in place.results]
    heads = ("setting", *_HEADS, "baseline", "kernel")
    rows = [(place.words, *_cells(result), *_times(result)) for place, result in results]
    parts = [
        element("p", element("a", "All kernels", href="index.html")),
        element("h1", f"{problem.id} {problem.slug}"),
        _muted(f"{problem.title} · {problem.category} · class {problem.class_}"),
        element("h2", "House kernel"),
        *(element("p", each) for each in (first.removeprefix(". "), *said.split("\n\n")[1:])),
        element("h2", "Measured"),
        element("div", table(heads, rows) or element("p", f"{NOT_YET.capitalize()}."), class_="card"),
        *(_told(result, _is_older(result, problem), machines) for _, result in results),
        element("h2", "Problem"),
        element("div", _prose(re.sub(r"^#[^\n]*\n", "", problem.card).replace("\n## ", "\n### ")), class_="card"),
        element("h2", "Source"),
        element("p", f"problems/{problem.category}/{problem.slug}/house.py", class_="muted"),
        code("house.py", source),
    ]
    return document(f"{problem.id} {problem.slug}", *parts)


def _prose(markdown: str) -> Markup:
    """Returns a text in Markdown as HTML. HTML, links and pictures in it are shown as text."""
    plain = MarkdownIt("js-default", {"html": False}).disable(["link", "image", "autolink"])
    return Markup(plain.render(printable(markdown)))


def _times(result: CellResult) -> tuple[str, str]:
    """The times of a call of both sides, by the headline's clock."""
    report = result.report
    sides = (report.baseline_us, report.contender_us) if report is not None else (None, None)
    found = [by_clock(side, report.clock if report is not None else "") for side in sides]
    return tuple("–" if us is None else f"{us:.1f} µs" for us in found)  # type: ignore[return-value]


def _is_older(result: CellResult | None, problem: Problem) -> bool:
    """Whether a result is of an older text of the house kernel."""
    return result is not None and result.code != code_hash(problem.house_source or "")


def _told(result: CellResult, older: bool, machines: dict[str, str]) -> Markup:
    assert result.report is not None
    (_, told), why = told_parts(result.report)
    where = (
        where_words(result.cell.setting),
        machines.get(result.machine, ""),
        time.strftime("%Y-%m-%d", time.gmtime(result.at)),
    )
    said = [f"{told or result.detail} {why}".rstrip(), "The source has changed since." if older else ""]
    return _muted(*" · ".join(filter(None, where)), ": ", ". ".join(filter(None, said)))


def _plot(place: Measured, catalogue: Catalogue, alone: bool = False) -> Markup:
    """Draws the speedups of a setting on a logarithmic scale, the largest first. alone: for a file of its own, without links."""
    shown = []
    for problem in catalogue.problems:
        report = place.results[problem.slug].report if problem.slug in place.results else None
        if report is not None and report.passed and report.interval is not None and report.outcome != TOO_NOISY:
            shown.append((report.interval, report, problem))
    shown.sort(key=lambda each: -each[0].median)
    low = math.floor(min([-1.0, *(math.log2(speed.median) for speed, *_ in shown)]))
    high = math.ceil(max([2.0, *(math.log2(speed.median) for speed, *_ in shown)]))
    width, height = _LEFT + _STEP * (len(shown) + 1), _TOP + _PLOT

    def at(speedup: float) -> str:
        return f"{_TOP + _PLOT * (high - min(max(math.log2(speedup), low), high)) / (high - low):.1f}"

    parts = []
    for power in range(low, high + 1):
        y = at(2.0**power)
        parts.append(
            element("line", x1=str(_LEFT), x2=str(width), y1=y, y2=y, class_="muted" if power == 0 else "rule")
        )
        parts.append(element("text", f"{2.0**power:g}×", x="0", y=y, class_="muted"))
    for number, (speed, report, problem) in enumerate(shown):
        x = str(_LEFT + _STEP * (number + 1) - _STEP // 2)
        figure = f"{problem.id} {problem.slug}: {speed.median:.2f}× {ends(speed)} {WHERE[report.clock]}"
        drawn = [
            element("title", figure),
            element("line", x1=x, x2=x, y1=at(speed.low), y2=at(speed.high)),
            element("circle", cx=x, cy=at(speed.median), r="3.5", class_="hollow" if report.clock == "device" else ""),
            element("text", str(problem.id), x=x, y=str(height + 14), class_="muted id"),
        ]
        role = {"faster": "good", "slower": "bad"}.get(report.outcome, "muted")
        parts.append(
            element("g", *drawn, class_=role) if alone else element("a", *drawn, class_=role, href=_file(problem))
        )
    if alone:
        parts = [element("style", Markup(STYLE)), element("rect", class_="paper", width="100%", height="100%"), *parts]
    title = f"Speedups of {len(shown)} house kernels over PyTorch with NCCL, {place.words}"
    return element(
        "svg", *parts, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height + 22}", role="img", aria_label=title,
        class_="plot",
    )  # fmt: skip
