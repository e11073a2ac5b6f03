"""The texts of the profile screen: lanes, sentences, measured times, figures."""

import textwrap
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from textual.content import Content

from arena.errors import ArenaError
from arena.profile.gpu_rules import GpuFigures
from arena.profile.ncu import NcuProfiled, how_lines, kernel_lines, rule_lines
from arena.profile.profile_process import Profiled
from arena.profile.report import ADVICE, FACT, HEAD, LACK, NOTE, ROW, Line, above_lanes, below_lanes, summary
from arena.profile.rules import RankFigures
from arena.profile.timeline import SIGNS, LanePiece, Sort, Timeline, cells
from arena.words.headline import headline_of
from arena.words.untrusted_text import printable
from sandbox.protocol.profile import RankProfile
from sandbox.protocol.result import BareResult
from screens import figures
from screens.widgets.text_lines import hanging

COLOURS: dict[Sort, str] = {
    "waiting": "$warning",
    "exchange": "$accent",
    "copy": "$code-keyword",
    "operation": "$foreground",
    "code": "$muted",
    "sync": "$warning",
    "launch": "$accent",
}
_HIGHEST = 3
"""Maximum rows of a lane."""
_LABEL = 19
"""Cells of the labels in front of the judge's and the kernel's times."""
_STYLES = {HEAD: "$muted", NOTE: "$muted", LACK: "$warning"}
_STYLES |= dict.fromkeys((ROW, FACT), "$foreground")


def page(
    found: Profiled, timeline: Timeline | None, judged: Content, below: Content, width: int, height: int
) -> Content:
    """The page of a profile. Lanes get higher if there is room. judged: the trusted line; below: the last lines."""
    rows = _rows(found, timeline, judged, below, width, 1)
    spare = height - sum(row.plain.count("\n") + 1 for row in rows)
    ranks = len(found.reports)
    if spare >= ranks > 0:
        rows = _rows(found, timeline, judged, below, width, min(_HIGHEST, 1 + spare // ranks))
    return Content("\n").join(rows)


def _rows(
    found: Profiled, timeline: Timeline | None, judged: Content, below: Content, width: int, high: int
) -> list[Content]:
    """The page with lanes of `high` rows."""
    source, told = summary(found)
    return [
        *hanging(Content.styled("timed by the judge", "$muted"), judged, width, _LABEL),
        *hanging(Content.styled(source, "$muted"), Content(told), width, _LABEL),
        *_drawn(above_lanes(found), width),
        Content(""),
        *_lanes(found.ranks, timeline, width, high),
        *(_legend(timeline.words, width) if timeline else []),
        Content(""),
        *_drawn(below_lanes(found), width),
        Content(""),
        below,
    ]


def _drawn(lines: Sequence[Line], width: int) -> list[Content]:
    """Lines of the report in `width` cells: columns of tables that do not fit are left out, sentences are wrapped."""
    rows: list[Content] = []
    for role, text in lines:
        if role in (HEAD, ROW):
            shown = text[:width] if text[width:][:1].isspace() else f"{text} "[: width + 1].rpartition(" ")[0]
            rows.append(Content.styled(shown.rstrip(), _STYLES[role]))
        elif role == ADVICE:
            rows += hanging(Content.styled("→ ", "$accent"), Content(printable(text)), width, len("rank 00 "))
        else:
            rows += [Content.styled(line, _STYLES[role]) for line in textwrap.wrap(printable(text), width)]
    return rows


def judged_words(result: BareResult | None, run_key: str) -> Content:
    """The judge's verdict and times of the revision: the figures that count."""
    if result is None:
        return Content.styled(
            f"No verdict on this revision in this setting yet. {run_key} at the kernel runs it.", "$muted"
        )
    parts = [figures.verdict_part(result.verdict)]
    headline = headline_of(result)
    if headline is not None:
        parts += [("  ", ""), figures.measured_part(headline.speedup, headline.outcome, headline.clock)]
    kernel, baseline = result.contender_us, result.baseline_us
    if kernel is not None and kernel.call is not None:
        parts.append((f" · {_us(kernel.call)} a call", "$foreground"))
        if baseline is not None and baseline.call is not None:
            parts.append((f", baseline {_us(baseline.call)}", "$muted"))
    return Content.assemble(*parts)


def at_work(waits: bool, seconds: float, machine_key: str) -> Content:
    """The text while there is no profile yet. machine_key: shows what runs on this machine."""
    if waits:
        head = "▸ WAITING"
        text = f"Another run is timing on these devices; {machine_key} shows whose. The profile starts after it."
    else:
        head = "▸ PROFILING"
        text = "A new world imports torch, warms the kernel up and calls it a few times under torch's profiler."
    return Content.assemble((f"{head}  {seconds:.0f} s", "bold $accent"), f"\n\n{text}")


def rank_failed(failed: RankProfile) -> Content:
    """The text after a failed call, with the rank's message."""
    return Content.assemble((f"✗ rank {failed.rank} failed", "bold $error"), f"\n\n{printable(failed.failed).rstrip()}")


def not_made(head: str, error: ArenaError) -> Content:
    """Why there is no profile, or no report of Nsight Compute."""
    found = Content.assemble((head, "bold $warning"), printable(error.message))
    return found + Content.assemble(("\n→ ", "$accent"), printable(error.advice)) if error.advice else found


def trace_words(path: Path | None, key: str) -> Content:
    """The line below the figures: how to get a trace, or where it is."""
    if path is None:
        return Content.assemble((key, "$accent"), (" writes every call as a trace that Perfetto opens", "$muted"))
    return Content.assemble(("trace  ", "$muted"), str(path), ("\nopen it with ui.perfetto.dev", "$muted"))


def ncu_offered(key: str) -> Content:
    """The line below the figures of GPUs: what the key does."""
    words = " profiles the kernels of rank 0 with Nsight Compute, which takes minutes"
    return Content.assemble("\n", (key, "$accent"), (words, "$muted"))


def ncu_at_work(waits: bool, seconds: float) -> Content:
    """The line while Nsight Compute profiles."""
    what = "another run is timing on these devices" if waits else "a world runs under ncu, which repeats its launches"
    return Content.assemble(("\n\n▸ NSIGHT COMPUTE", "bold $accent"), (f"  {seconds:.0f} s  {what}", "$foreground"))


def ncu_found(found: NcuProfiled) -> Content:
    """How Nsight Compute ran, the longest kernels, the rules that matter, and the report's file."""
    parts: list[tuple[str, str]] = [("\n", "")]
    parts += [(f"\n{line}", "$muted") for line in how_lines(found)]
    parts += [(f"\n{line}", "$foreground") for line in kernel_lines(found.kernels)]
    for line in rule_lines(found.kernels):
        parts += [("\n→", "$accent"), (line.removeprefix("→"), "$foreground")]
    return Content.assemble(*parts, ("\nreport  ", "$muted"), found.file)


def lane(pieces: Sequence[LanePiece], us: float, width: int) -> Content:
    """One rank's part of a call of `us` microseconds, in `width` cells. All lanes have the same start and end."""
    drawn = cells(pieces, us, width)
    runs = ((sort, len(list(run))) for sort, run in groupby(drawn))
    return Content.assemble(*((SIGNS[s] * n, COLOURS[s]) if s else " " * n for s, n in runs))


def _lanes(
    ranks: Sequence[RankFigures | GpuFigures], timeline: Timeline | None, width: int, high: int
) -> list[Content]:
    rows: list[Content] = []
    for at, rank in enumerate(ranks):
        label = Content.styled(f"rank {rank.rank}", "bold $foreground")
        rows += hanging(label, Content(printable(rank.diagnosis)), width, len("rank 00 "))
        if timeline is not None:
            rows += [*_lanes_of(timeline, at, width, high), Content("")]
    if timeline is None:
        return rows
    label_cells = len(_GPU) if timeline.host_lanes else 0
    middle = "a typical call"
    end = _us(timeline.us)
    between = max(1, (width - label_cells - len(middle)) // 2 - 1)
    axis = " " * label_cells + "0" + " " * between + middle
    rows[-1] = Content.styled(axis + end.rjust(max(len(end) + 1, width - len(axis))), "$muted")
    return [*rows, Content("")]


_GPU, _HOST = "GPU  ", "host "


def _lanes_of(timeline: Timeline, rank: int, width: int, high: int) -> list[Content]:
    """The rows of a rank's lane: `high` rows, and on a GPU one more for its host."""
    if not timeline.host_lanes:
        return [lane(timeline.lanes[rank], timeline.us, width)] * high
    wide = width - len(_GPU)
    gpu, host = (lane(lanes[rank], timeline.us, wide) for lanes in (timeline.lanes, timeline.host_lanes))
    rows = [Content.styled(_GPU, "$muted") + gpu, *[Content(" " * len(_GPU)) + gpu] * (high - 1)]
    return [*rows, Content.styled(_HOST, "$muted") + host]


def _legend(said: dict[Sort, str], width: int) -> list[Content]:
    """The signs of the lanes and their meanings, as many in a row as fit."""
    rows: list[Content] = []
    for sort, words in said.items():
        entry = Content.assemble((SIGNS[sort], COLOURS[sort]), (f" {words}", "$muted"))
        if rows and rows[-1].cell_length + 3 + entry.cell_length <= width:
            rows[-1] += Content("   ") + entry
        else:
            rows.append(entry)
    return rows


def _us(value: float) -> str:
    return f"{value:,.0f} µs" if value >= 99.5 else f"{value:.1f} µs"
