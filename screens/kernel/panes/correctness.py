"""One row per rank: correct or wrong, the used share of the error limit, and a map of wrong elements."""

from typing import ClassVar

from textual.content import Content

from arena.runs.run_state import RunState
from arena.words.untrusted_text import printable
from sandbox.protocol.events import OutputError, RankChecked
from screens import figures
from screens.kernel.panes.run_pane import RunPane
from screens.kernel.run_update import RunUpdate
from screens.widgets.text_lines import PlainStatic

Part = tuple[str, str] | str


BOTH_FROM = 43
"""Columns that two meters of a rank need; with fewer, only the one nearer to its limit is shown."""


LEAST_MAP = 4
"""Minimum cells of a map of wrong elements."""


def worst(rank: RankChecked) -> OutputError | None:
    """The output to show for a rank: the first wrong one, else the one nearest to its limit."""
    wrong = [output for output in rank.outputs if not output.ok]
    if wrong:
        return wrong[0]
    return max(rank.outputs, key=lambda output: share(output.rms, output.rms_limit), default=None)


def share(value: float, limit: float) -> float:
    """How much of a limit is used; outputs that must match exactly use all of it or nothing."""
    if limit > 0.0:
        return value / limit
    return 0.0 if value == 0.0 else 1.0


def rank_parts(rank: RankChecked, width: int) -> list[Part]:
    """The row of one rank, `width` cells wide."""
    output = worst(rank)
    parts: list[Part] = [f"rank {rank.rank} ", ("✓ " if rank.ok else "✗ ", "$success" if rank.ok else "$error")]
    if output is None:
        return [*parts, ("no outputs", "$muted")]
    if not rank.ok and output.where:
        return parts + _wrong_parts(output, width)
    if output.exact:
        return [*parts, ("exact match" if output.ok else "differs", "$muted")]
    bar = max(4, min(14, (width - 40) // 2))
    limits = [("rms", output.rms, output.rms_limit), ("max", output.max, output.max_limit)]
    if width < BOTH_FROM:
        limits = [max(limits, key=lambda each: share(each[1], each[2]))]
    for name, value, limit in limits:
        used = share(value, limit)
        colour = "$accent" if used <= 1.0 else "$error"
        parts += [(f"{name} ", "$muted"), ("▕", "$rule"), (figures.meter(used, bar), colour), ("▏", "$rule"),
                  (f"{min(used, 999):>5.2f}  ", "$foreground" if used <= 1.0 else "$error")]  # fmt: skip
    return parts


def _wrong_parts(output: OutputError, width: int) -> list[Part]:
    """The map, the share and the first wrong value. Where there is no room, the map goes first, then the share."""
    percent = 100.0 * output.wrong / output.total if output.total else 0.0
    index = f"{figures.index_words(output.first_wrong)} "
    expected, got = printable(output.expected), printable(output.got)
    share_words = f"{percent:>5.1f} % "
    room = width - len(f"rank 0 ✗ {share_words}{index}{expected} ≠ {got}")
    parts: list[Part] = []
    if room >= LEAST_MAP + 2:  # with its edges
        heat = "".join(figures.shade(part) for part in squeeze(output.where, min(32, room - 2)))
        parts += [("▕", "$rule"), (heat, "$error"), ("▏", "$rule")]
    if room >= 0:
        parts.append((share_words, "$error"))
    return [*parts, index, expected, (" ≠ ", "$muted"), (got, "$error")]


def squeeze(where: list[float], cells: int) -> list[float]:
    """Returns the map in at most `cells` parts; each part has the largest share of the parts that it covers."""
    step = -(-len(where) // cells) if where else 1
    return [max(where[at : at + step]) for at in range(0, len(where), step)]


class Correctness(PlainStatic, RunPane, can_focus=True):
    """The grid of ranks with their error meters against the limits."""

    DEFAULT_CSS = """
    Correctness {
        text-wrap: nowrap;
        text-overflow: ellipsis;
        height: auto;
        max-height: 12;
        min-height: 3;
        padding: 0 1;
    }
    """
    NAME: ClassVar[str] = "correctness"
    TITLE: ClassVar[str] = "Correctness"
    LETTER: ClassVar[str] = "c"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id)
        self._shown: tuple[object, ...] = ()

    def show(self, update: RunUpdate) -> None:
        """Draws again only when a rank or the width changed."""
        state = update.state
        width = self.content_size.width
        world = state.setting.world if state.setting else 0
        paper = state.checked.paper_rule if state.checked else ""
        key = (
            state.run_id,
            width,
            paper,
            state.running,
            state.verdict,
            *(state.ranks.get(rank) for rank in range(world)),
        )
        if key == self._shown:
            return
        self._shown = key
        if not state.ranks:
            ended = state.verdict is not None
            words = "No output was compared." if ended else "Each rank is compared with a float64 oracle."
            self.update(Content.styled(words, "$muted"))
            return
        rows: list[Content] = []
        for rank in range(world):
            if rank in state.ranks:
                rows.append(Content.assemble(*rank_parts(state.ranks[rank], width)))
            else:
                rows.append(Content.styled(f"rank {rank} ·", "$muted"))
        if width >= 50:  # LEGEND_FROM without frame and padding
            rows.append(Content.styled(self._legend(state, paper, width), "$muted"))
        self.update(Content("\n").join(rows))

    def _legend(self, state: RunState, paper: str, width: int) -> str:
        if all(rank.ok for rank in state.ranks.values()):
            rule = f"  ·  paper's rule: {printable(paper)}" if paper else ""
            told = f"1.00 = the limit, from the baseline's own error{rule}"
            return told if len(told) <= width else f"1.00 = the limit{rule}"
        told = "map of the flattened output · wrong · first index: expected ≠ got"
        return told if len(told) <= width else "map · wrong · first index: expected ≠ got"
