"""Times of baseline and kernel in microseconds per call."""

import textwrap
from collections.abc import Sequence
from typing import ClassVar

from textual.content import Content
from textual.geometry import Size

from arena.runs.run_state import RunState
from arena.words.headline import detectable_words
from sandbox.machine.devices import kind_of
from sandbox.protocol.kernel_files import MAIN
from screens import figures
from screens.kernel.panes.run_pane import RunPane
from screens.kernel.run_update import RunUpdate
from screens.widgets.key_line import entitle
from screens.widgets.text_lines import PlainStatic


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The nearest-rank percentile; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(percent / 100.0 * len(ordered)))]


VARIANT_NAMES = {
    "baseline-graph": "as CUDA graph",
    "baseline-windows": "NCCL windows",
    "baseline-copy-engine": "NCCL copies",
}


def remark(update: RunUpdate) -> str:
    """The text below the times: the smallest detectable differences, and what makes them smaller."""
    result = update.state.told
    if result is None or not result.told:
        return ""
    helps = f"to reduce noise: {update.advice}" if update.advice else ""
    told = result.outcome not in ("faster", "slower")  # then the sentence above the times includes it
    setting = update.state.setting
    unmeasured = result.roofline is None and setting is not None and kind_of(setting.device).on_gpus
    bound = "of bound: after `pkb-arena calibrate`" if unmeasured else ""
    return " · ".join(filter(None, [helps, "" if told else detectable_words(result.speedup), bound]))


def _wrapped(text: str, width: int, colour: str) -> list[Content]:
    return [Content.styled(line, colour) for line in textwrap.wrap(text, max(width, 20), break_on_hyphens=False)]


def _cut(lines: list[Content], room: int, width: int, colour: str) -> list[Content]:
    """Returns the first `room` lines; if some are left out, the last of them ends in an ellipsis."""
    shown = lines[:room]
    if shown and len(lines) > room:
        last = textwrap.shorten(f"{shown[-1].plain} {lines[room].plain}", max(width, 20), placeholder=" …")
        shown[-1] = Content.styled(last, colour)
    return shown


class TimingTable(PlainStatic, RunPane, can_focus=True):
    """End-to-end time with its spread, device time if defined, percent of the roofline; baseline variants below."""

    DEFAULT_CSS = "TimingTable { height: auto; min-height: 5; }"
    NAME: ClassVar[str] = "timing"
    TITLE: ClassVar[str] = "Time"
    LETTER: ClassVar[str] = "t"
    SHOWN_AFTER_FAILURE: ClassVar[bool] = False

    most_rows: int | None = None
    """Most rows of the content; None: no limit."""
    _shown: tuple[object, ...] = ()
    _rows = 0

    def show(self, update: RunUpdate) -> None:
        """Draws again only when a round, the result or its advice arrived: a resize may draw it before its advice."""
        state = update.state
        width = self.content_size.width
        entitle(self, subtitle=f"{update.profile_key} profiles it" if update.profile_key else "")
        key = (state.run_id, len(state.samples), state.told, update.advice, width, self.most_rows)
        if key != self._shown:
            self._shown = key
            table = self._content(update, width)
            rows = table.plain.count("\n")
            self.update(table, layout=rows != self._rows)
            self._rows = rows

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """The height at this width. When a hidden pane is shown again, its last drawing is for another width."""
        if self._latest is None or not width:
            return super().get_content_height(container, viewport, width)
        return self._content(self._latest, width).plain.count("\n") + 1

    def _content(self, update: RunUpdate, width: int) -> Content:
        table = self._table(update.state, width, update.versus)
        result = update.state.told
        above = _wrapped(result.told if result is not None else "", width, "$foreground")
        below = _wrapped(remark(update), width, "$muted")
        if self.most_rows is not None:
            room = max(0, self.most_rows - table.plain.count("\n") - 1)
            above = _cut(above, max(min(room, 1), room - min(len(below), (room + 1) // 2)), width, "$foreground")
            below = _cut(below, room - len(above), width, "$muted")
        return Content("\n").join([*above, table, *below])

    def _table(self, state: RunState, width: int, versus: str = "") -> Content:
        result = state.told
        # The pairs that the medians are computed from; the event of a round has only its last pair.
        pairs = result.samples.call if result is not None and result.samples.call else state.samples
        rounds_of = [pair.baseline_us for pair in pairs], [pair.contender_us for pair in pairs]
        roofline = result.roofline if result else None
        on_gpus = state.setting is not None and kind_of(state.setting.device).on_gpus
        wide = width >= 62 and (on_gpus or roofline is not None)
        more = f"{'device':>9}{'of bound':>10}" if wide else ""
        head = f"{'µs per call':<17}{'median':>9}{'p5':>9}{'p95':>9}{more}"
        rows = [Content.styled(head, "$muted")]
        name = state.kernel_name.removesuffix(f"/{MAIN}") or "kernel"
        backend = f"{kind_of(state.setting.device).backend} " if state.setting else ""
        labels = f"against {versus}"[:16] if versus else f"{backend}baseline", name[:16]
        finals = (result.baseline_us, result.contender_us) if result else (None, None)
        for label, rounds, final in zip(labels, rounds_of, finals, strict=True):
            median = final.call if final and final.call is not None else percentile(rounds, 50)
            row = f"{label:<17}{figures.microseconds(median)}"
            spread = rounds if len(rounds) > 1 else []
            row += figures.microseconds(percentile(spread, 5)) + figures.microseconds(percentile(spread, 95))
            if wide:
                row += figures.microseconds(final.device if final else None)
                bound = f"{100 * roofline.bound_us / median:.0f} %" if roofline and median else "–"
                row += f"{bound:>10}"
            rows.append(Content(row))
        for variant, times in (result.beside if result else {}).items():
            row = f"{VARIANT_NAMES.get(variant, variant)[:16]:<17}{figures.microseconds(times.call)}"
            rows.append(
                Content.styled(row + (f"{'':18}{figures.microseconds(times.device)}" if wide else ""), "$muted")
            )
        return Content("\n").join(rows)
