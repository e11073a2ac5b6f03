"""The dialog with the findings of `doctor`, and advice."""

import asyncio

from textual.content import Content

from arena.machine.doctor import can_run, examine
from arena.machine.finding import MachineFinding
from arena.machine.transfers import transfers_finding
from arena.paths import find_paths
from arena.runs.clock_findings import clock_finding
from arena.words.untrusted_text import printable
from screens.dialogs import Reader
from screens.widgets.tables import FilterInput
from screens.widgets.text_lines import hanging

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


class DoctorScreen(Reader):
    """Examines the machine when it opens; GPUs take a moment."""

    _findings: list[MachineFinding] | None = None
    """None while it examines."""

    def __init__(self) -> None:
        super().__init__("Doctor")

    def on_mount(self) -> None:
        self.run_worker(self._check(), exit_on_error=False)

    async def _check(self) -> None:
        self._findings = await asyncio.to_thread(_findings)
        self.query_one("#sections").refresh(layout=True)

    def _rows(self, width: int) -> list[Content]:
        if self._findings is None:
            return [Content("checking: a few seconds, with GPUs more")]
        good, bad = ("Kernels can run here.", "$success"), ("Kernels cannot run here yet: see ✗ below.", "$error")
        head = Content.styled(*(good if can_run(self._findings) else bad))
        shown = [each for each in self._findings if self.query_one(FilterInput).finds(f"{each.name} {each.found}")]
        return [head, Content(""), *(line for each in shown for line in finding_lines(each, width))]
