"""A verdict on a page: the conclusion, the figures and the failure; and the cost of an attempt."""

from collections.abc import Sequence

import msgspec

from arena.export.pages.markup import Markup, element, folded, joined
from arena.models.budget import Spent
from arena.records.report_text import output_of
from arena.records.run_record import OtherSize, RunRecord
from arena.runs.other_sizes import setting_words
from arena.words.headline import SIGNS, TOO_NOISY, WHERE, by_clock, outcome_words
from sandbox.protocol.verdict import Verdict
from sandbox.timing.conclusion import ends, percent
from sandbox.timing.interval import detectable_percent


def verdict_words(verdict: str) -> str:
    """ "✓ PASS" or "✗ WRONG_RESULT"."""
    return f"{'✓' if verdict == Verdict.PASS else '✗'} {verdict}"


def verdict_mark(verdict: str) -> Markup:
    """The verdict in its colour."""
    return element("strong", verdict_words(verdict), class_="good" if verdict == Verdict.PASS else "bad")


def speedup_words(report: RunRecord | OtherSize | None) -> str:
    """ "▲ 1.42× [1.39, 1.45] faster end-to-end"; empty if nothing was timed."""
    speedup = by_clock(report.speedup, report.clock) if report is not None else None
    if report is None or speedup is None:
        return ""
    figure = "" if report.outcome == TOO_NOISY else f"{speedup.median:.2f}× "
    words = f"{outcome_words(report.outcome)} {WHERE.get(report.clock, '')}".rstrip()
    return f"{SIGNS.get(report.outcome, '·')} {figure}{ends(speedup)} {words}"


def cost_words(spent: Spent) -> str:
    """ "12,000 tokens read, 3,400 written, $0.21"; empty if nothing was spent."""
    if not (spent.tokens or spent.usd):
        return ""
    estimated = ", in part estimated" if spent.estimated else ""
    return f"{spent.read:,} tokens read, {spent.written:,} written, ${spent.usd:.4f}{estimated}"


def verdict_part(report: RunRecord) -> Markup:
    """Shows everything in a report."""
    told = report.told or speedup_words(report)
    parts = [element("p", verdict_mark(report.verdict), f" {told}" if told else "")]
    if report.failure is not None:
        parts.append(element("p", report.detail))
    parts += [_clocks(report), _facts(report)]
    if report.failure is not None and (output := output_of(report.failure)):
        parts.append(folded("Output", element("pre", output, class_="words"), is_open=True))
    return joined(*parts)


def _clocks(report: RunRecord) -> Markup:
    """Shows a row per clock: the speedup, both times, and the smallest detectable difference."""
    if report.baseline_us is None or report.contender_us is None:
        return Markup()
    rows = []
    for clock, base, mine in (
        ("call", report.baseline_us.call, report.contender_us.call),
        ("device", report.baseline_us.device, report.contender_us.device),
    ):
        speedup = by_clock(report.speedup, clock)
        if speedup is not None:
            rows.append(
                (
                    *(WHERE[clock], f"{speedup.median:.2f}× {ends(speedup)}", _us(base), _us(mine)),
                    percent(detectable_percent(speedup)),
                )
            )
    other = "baseline" if not report.rival else "other kernel"
    return table(("clock", "speedup", other, "kernel", "smallest detectable difference"), rows)


def _us(value: float | None) -> str:
    return f"{value:.1f} µs" if value is not None else "–"


def _facts(report: RunRecord) -> Markup:
    """Shows the other figures of a report, one row each."""
    facts: list[tuple[str, str]] = []
    if report.roofline is not None:
        closed = report.gap_closed
        known = closed is not None and report.outcome != TOO_NOISY
        gap = f"; {100 * (closed or 0):.0f} % of the gap between baseline and bound closed" if known else ""
        bound = f"{report.roofline.percent:.0f} % of the bound of {report.roofline.bound_us:.1f} µs"
        facts.append(("roofline", f"{bound}, which {report.roofline.limiter} sets{gap}"))
    if report.error is not None:
        error = f"{report.error.rms:.2e}, the baseline's {report.error.baseline_rms:.2e}"
        facts.append(("error", f"{error}; paper rule: {report.paper_rule or 'not applied'}"))
    for name, times in report.beside.items():
        on_device = f", {times.device:.1f} µs device time" if times.device else ""
        facts.append((f"baseline variant {name}", f"{_us(times.call)} a call{on_device}"))
    if not isinstance(report.other_sizes, msgspec.UnsetType):
        for other in report.other_sizes:
            told = speedup_words(other) if other.passed else other.detail
            facts.append(("other size", f"{setting_words(other)}: {verdict_words(other.verdict)} {told}".rstrip()))
    if report.holds_at_other_sizes:
        facts.append(("faster at other sizes", report.holds_at_other_sizes))
    if report.labels:
        facts.append(("labels", ", ".join(report.labels)))
    if report.advice:
        facts.append(("to reduce noise", report.advice))
    seconds = report.seconds
    phases = f"load {seconds.load:.2f}, check {seconds.check:.2f}, time {seconds.time:.2f}"
    facts.append(("seconds", f"{seconds.total:.2f} ({phases}); {report.rounds} rounds; jail: {report.jail}"))
    return table(("", ""), [(element("span", what, class_="muted"), words) for what, words in facts])


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """Returns a table, empty without rows. On a narrow screen each row is a block with the heads as labels."""
    if not rows:
        return Markup()
    head = element("thead", element("tr", *(element("th", each) for each in heads))) if any(heads) else Markup()
    body = [
        element("tr", *(element("td", cell, data_label=label) for label, cell in zip(heads, row, strict=True)))
        for row in rows
    ]
    return element("table", head, element("tbody", *body))
