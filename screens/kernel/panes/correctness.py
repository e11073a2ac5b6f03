"""One row per rank: correct or wrong, the used share of the error limit, and a map of wrong elements."""

from collections.abc import Iterable
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
LEAST_MAP, MOST_MAP = 4, 32
"""Minimum and maximum cells of a map of wrong elements."""


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


def rank_parts(rank: RankChecked, width: int, cells: int) -> list[Part]:
    """The row of one rank, `width` cells wide. cells: of a map of wrong elements."""
    output = worst(rank)
    parts: list[Part] = [f"rank {rank.rank} ", ("✓ " if rank.ok else "✗ ", "$success" if rank.ok else "$error")]
    if output is None:
        return [*parts, ("not compared", "$muted")]
    if not rank.ok and output.where:
        return parts + _wrong_parts(output, width, cells)
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


def map_cells(ranks: Iterable[RankChecked], width: int) -> int:
    """Returns the cells that the words of every wrong rank leave for its map, so that all maps have the same scale."""
    rooms = [width - _words_of(output)[0] - 2 for rank in ranks if not rank.ok and (output := worst(rank)) is not None]
    return min([MOST_MAP, *rooms])


def _words_of(output: OutputError) -> tuple[int, str, str, str, str]:
    """Returns the cells of a wrong rank's row without its map, and the row's words."""
    percent = 100.0 * output.wrong / output.total if output.total else 0.0
    index, share_words = f"{figures.index_words(output.first_wrong)} ", f"{percent:>5.1f} % "
    expected, got = printable(output.expected), printable(output.got)
    return len(f"rank 0 ✗ {share_words}{index}{expected} ≠ {got}"), share_words, index, expected, got


def _wrong_parts(output: OutputError, width: int, cells: int) -> list[Part]:
    """The map, the share and the first wrong value. Where there is no room, the map goes first, then the share."""
    taken, share_words, index, expected, got = _words_of(output)
    parts: list[Part] = []
    if cells >= LEAST_MAP:
        heat = "".join("░▒▓█"[min(3, int(part * 4))] if part > 0 else "·" for part in squeeze(output.where, cells))
        parts += [("▕", "$rule"), (heat, "$error"), ("▏", "$rule")]
    if width >= taken:
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
        height: auto;
        max-height: 12;
        min-height: 3;
    }
    """
    NAME: ClassVar[str] = "correctness"
    TITLE: ClassVar[str] = "Correctness"
    LETTER: ClassVar[str] = "c"

    _shown: tuple[object, ...] = ()

    def show(self, update: RunUpdate) -> None:
        """Draws again only when a rank or the width changed."""
        state = update.state
        width = self.content_size.width
        world = state.setting.world if state.setting else 0
        ranks = (state.ranks.get(rank) for rank in range(world))
        key = (state.run_id, width, state.running, state.verdict, *ranks)
        if key == self._shown:
            return
        self._shown = key
        if not state.ranks:
            ended = state.verdict is not None
            words = "No output was compared." if ended else "Each rank is compared with a float64 oracle."
            self.update(Content.styled(words, "$muted"))
            return
        rows: list[Content] = []
        cells = map_cells(state.ranks.values(), width)
        for rank in range(world):
            if rank in state.ranks:
                rows.append(Content.assemble(*rank_parts(state.ranks[rank], width, cells)))
            else:
                rows.append(Content.styled(f"rank {rank} ·", "$muted"))
        if width >= 50:  # LEGEND_FROM without frame and padding
            rows.append(Content.styled(self._legend(state, width), "$muted"))
        self.update(Content("\n").join(rows))

    def _legend(self, state: RunState, width: int) -> str:
        if all(rank.ok for rank in state.ranks.values()):
            return "1.00 = the limit, from the baseline's own error"
        told = "map of the flattened output · wrong · first index: expected ≠ got"
        return told if len(told) <= width else "map · wrong · first index: expected ≠ got"
