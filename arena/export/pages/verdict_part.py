"""A verdict on a page: the conclusion, the figures and the failure; and the cost of an attempt."""

from collections.abc import Sequence

from arena.export.pages.markup import Markup, element, folded, joined
from arena.models.budget import Spent
from arena.records.report_text import Span, facts, output_of, told_parts, verdict_span
from arena.records.run_record import RunRecord


def marked(span: Span) -> Markup:
    """A span in the colour of its role."""
    role, words = span
    return element("strong", words, class_=role)


def cost_words(spent: Spent) -> str:
    """ "12,000 tokens read, 3,400 written, $0.21"; empty if nothing was spent."""
    if not (spent.tokens or spent.usd):
        return ""
    estimated = ", in part estimated" if spent.estimated else ""
    return f"{spent.read:,} tokens read, {spent.written:,} written, ${spent.usd:.4f}{estimated}"


def verdict_part(record: RunRecord) -> Markup:
    """Shows everything in a record."""
    (_, told), why = told_parts(record)
    parts = [element("p", marked(verdict_span(record.verdict)), f" {told} {why}".rstrip())]
    if record.failure is not None:
        parts.append(element("p", record.detail))
    rows = [(element("span", fact.name, class_="muted"), fact.text) for fact in facts(record)]
    parts.append(table(("", ""), rows))
    if record.failure is not None and (output := output_of(record.failure)):
        parts.append(folded("Output", element("pre", output, class_="words"), is_open=True))
    return joined(*parts)


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
