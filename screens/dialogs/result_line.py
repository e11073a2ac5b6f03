"""Rows for lists of results: one run per row. A voided result is struck out, with its note below."""

import textwrap
import time

from textual.content import Content

from arena.records.run_record import RunRecord, Unrun
from arena.records.voids import Void
from arena.words.untrusted_text import printable
from screens import figures

_PLAYER = 20
"""Columns of a player's name."""
_NAME = 24
"""Most columns of a kernel's name."""


def result_line(
    entry: RunRecord | Unrun, room: int, wide: bool, here: bool = False, player: bool = False, kernel: str = ""
) -> Content:
    """Returns a run's time, verdict, speedup, setting and revision; with `player`, its name. Two rows unless `wide`.

    room: columns of a row, for the note. kernel: name of the open kernel; the name of another one is shown.
    """
    when = time.strftime("%d %b %H:%M:%S", time.localtime(entry.created))
    if isinstance(entry, Unrun):
        mark = ("  in the editor" if here else "", "$accent")
        words = f"{'not run':<18}{'':<36}" if wide else "not run  "
        return Content.assemble((f"{when}  {words}{entry.sha256[:8]}", "$muted"), mark)
    words = figures.verdict_words(entry.verdict)
    speed = ""
    colour = figures.verdict_style(entry.verdict)
    if entry.interval is not None:
        speed = figures.measured_words(entry.interval, entry.outcome, entry.clock)
    elif entry.passed:
        speed = entry.outcome or "not timed"
    setting = f"{entry.preset} · {entry.dtype} · W={entry.world} · {entry.device}"
    name = entry.sha256[:8]
    if kernel and entry.kernel_name != kernel:
        name += f" {figures.cut(printable(entry.kernel_name), _NAME)}"
    who = figures.cut(printable(entry.player), _PLAYER) if player else ""
    below = " · ".join(filter(None, [who, name, "in the editor" if here else "", setting]))
    line = Content.assemble(
        (f"{when}  ", "$muted"),
        (f"{who:<{_PLAYER}}  " if player and wide else "", "$accent"),
        (f"{words:<18}" if wide else f"{words}  ", f"${colour}"),
        (f"{speed:<36}" if wide else speed, f"${figures.outcome_style(entry.outcome)}"),
        (f"{name}  " if wide else f"\n  {below}", "$muted"),
        *([("in the editor  " if here else "", "$accent"), (setting, "$muted")] if wide else []),
    )
    return struck_out(line, entry.voided, room) if entry.voided else line


def struck_out(line: Content, void: Void, room: int) -> Content:
    """Returns the line struck out; the rows below it show who voided it, and why."""
    note = textwrap.fill(printable(void.words), max(20, room), initial_indent="  ", subsequent_indent="  ")
    return Content.assemble(line.stylize("strike"), (f"\n{note}", "$warning"))
