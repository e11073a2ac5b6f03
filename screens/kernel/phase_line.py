"""The phases of the run, each with its time in seconds."""

from textual.content import Content

from arena.runs.run_state import RunState
from arena.words.untrusted_text import printable
from sandbox.protocol.events import PHASES
from sandbox.protocol.verdict import Verdict
from screens import figures
from screens.kernel.headline import WAITING
from screens.kernel.run_update import other_failure
from screens.widgets.text_lines import PlainStatic

NEAR = 0.25
"""Share of a phase's limit that must have passed before the line names the limit; that of timing is always named."""
LEAST_WAIT_S = 0.1
"""Seconds of waiting for another run from which the line names them."""
_GAP = "  "
_CELLS = 11
"""Cells of a phase, if there is room, so that the later phases do not move."""


def phase_parts(state: RunState, now: float, most_s: float | None = None) -> list[tuple[str, str]]:
    """Returns (text, theme colour) for every phase. `now` is on the same clock as the events' `at`.

    most_s: the longest that timing may take, in seconds; None: not known.
    """
    parts: list[tuple[str, str]] = []
    waiting = state.waiting if state.running else None
    other = other_failure(state)
    failed_in = other.phase if other is not None else state.failure.phase if state.failure is not None else ""
    for name in PHASES:
        phase = state.phases.get(name)
        if name == "time" and waiting is not None:  # also between rounds, while it measures on
            parts.append((f"▸ {WAITING} {now - waiting.at:.0f} s", "accent"))
            parts.append((f"({printable(waiting.words)})", "accent"))
        elif name == "time" and state.waited >= LEAST_WAIT_S:
            parts.append((f"✓ waited {figures.seconds(state.waited)}", "foreground"))
        if name == failed_in:  # even if the phase has ended: its seconds are known then
            took = f" {figures.seconds(phase.seconds)}" if phase and phase.seconds is not None else ""
            parts.append((f"✗ {name}{took}{', other kernel' if other is not None else ''}", "error"))
        elif phase is None or (name == "time" and waiting is not None):
            if name != "prepare" and state.verdict is not Verdict.PASS:  # a kernel may have nothing to compile
                parts.append((f"· {name}", "muted"))
        elif phase.seconds is not None:
            parts.append((f"✓ {name} {figures.seconds(phase.seconds)}", "foreground"))
        elif state.phase == name:
            elapsed = max(0.0, now - phase.started_at - phase.waited)
            limit = phase.limit_s if name != "time" else most_s if state.samples and not state.measuring_on else None
            near = limit and (name == "time" or elapsed > limit * NEAR)
            words = f", limit {limit:g} s {'of measuring' if name == 'time' else 'without waits'}" if near else ""
            parts.append((f"▸ {name} {elapsed:.1f} s{words}{_count(state, name)}", "accent"))
        elif state.running:  # a part of this phase is in progress: compiling
            parts.append((f"▸ {name}", "muted"))
        elif state.cancelled_in == name:
            parts.append((f"– {name} cancelled", "warning"))
        elif failed_in:  # only a part of this phase has failed: compiling
            parts.append((f"– {name}", "muted"))
        else:
            parts.append((f"✗ {name}", "error"))
    return parts


def fitting(parts: list[tuple[str, str]], width: int) -> list[tuple[str, str]]:
    """Returns the parts that fit `width` cells.

    Drops phases that have not begun first, then finished ones from the oldest on, then what is in brackets. What is in
    brackets and does not fit even then goes at once.
    """
    most = width - _cells([part for part in parts if part[0][:1] not in ("·", "✓", "(")])
    left = [part for part in parts if not part[0].startswith("(") or _cells([part]) <= most]
    for sign in "·✓(":
        for part in parts:
            if _cells(left) > width and part[0].startswith(sign) and part in left:
                left.remove(part)
    return left


def _cells(parts: list[tuple[str, str]]) -> int:
    return sum(len(text) + len(_GAP) for text, _ in parts)


def _count(state: RunState, phase: str) -> str:
    if phase == "time":
        if not state.samples:
            return "" if state.measuring_on else " · no speedup yet"
        last = state.samples[-1]
        return f" · round {last.round}/{last.rounds}" if last.rounds > last.round else f" · round {last.round}"
    if phase == "check" and state.ranks and state.setting:
        return f" · rank {len(state.ranks)}/{state.setting.world}"
    return ""


class PhaseLine(PlainStatic):
    """One row above the keys."""

    def show(self, state: RunState, now: float, note: str = "", most_s: float | None = None) -> None:
        """Draws the phases, then a note at the end ("esc twice cancels", "F5 runs"). most_s as for `phase_parts`."""
        phases: list[tuple[str, str]] = []
        if state.run_id and not state.refused:
            phases = [(words, f"${colour}") for words, colour in phase_parts(state, now, most_s)]
        rest = [(note, "$muted")]
        if state.result is not None:
            rest.insert(0, (f"in all {figures.seconds(state.result.seconds.total)} s", "$muted"))
        width = self.content_size.width
        parts = [*((words.ljust(_CELLS), colour) for words, colour in phases), *rest]
        if fitting(parts, width) != parts:
            parts = fitting([*phases, *rest], width)
            if _cells(parts) > width:
                parts = fitting([*phases, (note.rpartition(" · ")[2], "$muted")], width)  # the key is its last part
        self.update_if_new(Content.assemble(*(piece for part in parts for piece in (part, _GAP))))
