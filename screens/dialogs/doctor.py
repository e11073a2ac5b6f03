"""The dialog of the doctor's findings, with advice."""

import asyncio
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content

from arena.foreign_text import printable
from arena.machine.doctor import can_run, examine
from arena.machine.finding import MachineFinding
from screens.dialogs.dialog import Dialog
from screens.widgets.foreign import PlainStatic

_SIGNS = {"ok": ("✓", "success"), "limited": ("~", "warning"), "missing": ("✗", "error")}


def finding_lines(finding: MachineFinding) -> Content:
    """Sign, name and what was found; below it what to do."""
    sign, colour = _SIGNS.get(finding.state, ("?", "muted"))
    line = Content.assemble(
        (f"{sign} ", f"${colour}"), f"{finding.name:<16}", (printable(finding.found), "$muted")
    )
    if not finding.advice:
        return line
    return Content("\n").join([line, Content.assemble(" " * 18, ("→ ", "$accent"), finding.advice)])


class DoctorScreen(Dialog[None]):
    """Looks when it opens; GPUs take a moment."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "back")]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog large reader") as page:
            page.border_title = "Doctor"
            page.border_subtitle = "esc back"
            yield PlainStatic("looking…", id="findings")

    def on_mount(self) -> None:
        self.run_worker(self._look(), exit_on_error=False)

    async def _look(self) -> None:
        findings = await asyncio.to_thread(examine)
        if can_run(findings):
            words = Content.styled("Kernels can run here.", "$success")
        else:
            words = Content.styled("Kernels cannot run here yet: see ✗ below.", "$error")
        rows = [words, Content(""), *map(finding_lines, findings)]
        self.query_one("#findings", PlainStatic).update(Content("\n").join(rows))
