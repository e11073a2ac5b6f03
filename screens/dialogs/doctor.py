"""The dialog with the findings of `doctor`, and advice."""

import asyncio
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content

from arena.machine.doctor import can_run, examine
from arena.machine.finding import MachineFinding
from arena.machine.transfers import transfers_finding
from arena.paths import find_paths
from arena.runs.clock_findings import clock_finding
from arena.words.untrusted_text import printable
from screens.dialogs import Dialog
from screens.widgets.text_lines import FittedText, hanging

_SIGNS = {"ok": ("✓", "success"), "limited": ("~", "warning"), "missing": ("✗", "error")}
_NAMES = 19
"""Columns of sign and name."""


def finding_lines(finding: MachineFinding, width: int) -> list[Content]:
    """Returns the rows of a finding: sign, name and what was found; below them, what to do."""
    sign, colour = _SIGNS.get(finding.state, ("?", "muted"))
    label = Content.assemble((f"{sign} ", f"${colour}"), finding.name)
    lines = hanging(label, Content.styled(printable(finding.found), "$muted"), width, _NAMES)
    if finding.advice:
        advice = Content.assemble(("→ ", "$accent"), finding.advice)
        lines += hanging(Content(""), advice, width, _NAMES)
    return lines


def _findings() -> list[MachineFinding]:
    paths = find_paths()
    return [*examine(), clock_finding(paths), transfers_finding(paths.calibrations)]


class DoctorScreen(Dialog[None]):
    """Examines the machine when it opens; GPUs take a moment."""

    TO_READ = True
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "back", "back")]

    _findings: list[MachineFinding] | None = None
    """None while it examines."""

    def compose(self) -> ComposeResult:
        with self.frame("Doctor", "esc back", VerticalScroll, "large reader"):
            yield FittedText(self._rows, id="findings")

    def on_mount(self) -> None:
        self.run_worker(self._check(), exit_on_error=False)

    async def _check(self) -> None:
        self._findings = await asyncio.to_thread(_findings)
        self.query_one("#findings").refresh(layout=True)

    def _rows(self, width: int) -> list[Content]:
        if self._findings is None:
            return [Content("checking…")]
        good, bad = ("Kernels can run here.", "$success"), ("Kernels cannot run here yet: see ✗ below.", "$error")
        words = Content.styled(*(good if can_run(self._findings) else bad))
        return [words, Content(""), *(line for each in self._findings for line in finding_lines(each, width))]
