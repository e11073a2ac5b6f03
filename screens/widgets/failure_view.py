"""What is wrong with the kernel: it takes the chart's place when there is no speedup to draw."""

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from arena.foreign_text import printable
from arena.run_state import RunState
from sandbox.events import Failure
from sandbox.verdict import Verdict
from screens import figures
from screens.widgets.foreign import PlainStatic

_TEXT_SHOWN = 12_000


def failure_content(verdict: Verdict, failure: Failure) -> Content:
    """Verdict, place, expected and got, advice, then the traceback or compiler output."""
    rows: list[Content] = [Content.styled(printable(failure.message), "bold")]
    place = [f"phase {failure.phase}"]
    if failure.rank is not None:
        place.append(f"rank {failure.rank}")
    if failure.output:
        place.append(f"output {printable(failure.output)}")
    if failure.line is not None:
        place.append(f"line {failure.line}")
    rows.append(Content.styled(" · ".join(place), "$muted"))
    if failure.index is not None or failure.expected is not None:
        rows.append(Content(""))
        rows.append(_pair("first wrong", figures.index_words(failure.index)))
        rows.append(_pair("expected", printable(failure.expected or "–"), "$success"))
        rows.append(_pair("got", printable(failure.got or "–"), "$error"))
    if failure.wrong_share is not None:
        rows.append(_pair("wrong", f"{100 * failure.wrong_share:.2f} % of the elements"))
    if failure.advice:
        rows += [Content(""), Content.assemble(("→ ", "$accent"), printable(failure.advice))]
    if failure.line is not None:
        rows.append(Content.assemble(("→ ", "$accent"), f"enter in the log jumps to line {failure.line}"))
    if failure.text:
        rows += [Content(""), Content.styled(printable(failure.text[:_TEXT_SHOWN]).rstrip(), "$muted")]
    return Content("\n").join(rows)


def _pair(name: str, value: str, colour: str = "$foreground") -> Content:
    return Content.assemble((f"{name:<12}", "$muted"), (value, colour))


class FailureView(VerticalScroll):
    """Scrolls; long tracebacks are cut with the whole text kept in the log pane and the journal."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: Failure | None = None

    def compose(self) -> ComposeResult:
        yield PlainStatic("", id="failure-text")

    def show(self, state: RunState) -> None:
        """Draws again only when the failure changed."""
        failure, verdict = state.failure, state.verdict
        if failure is not None and verdict is not None and failure != self._shown:
            self._shown = failure
            self.query_one("#failure-text", PlainStatic).update(failure_content(verdict, failure))
            self.scroll_home(animate=False)
