"""Writes a recording to a file."""

import asyncio

from arena.cli.record import RecordPlan
from arena.duel.events import DuelHeader
from arena.paths import NAMED, unwritable
from arena.workspace.atomic_file import write_atomically
from screens.record.animated_svg import animated_svg
from screens.record.asciicast import asciicast
from screens.record.recorder import record_duel, record_run
from screens.themes import DEFAULT, FOLDER, load_themes


def record(plan: RecordPlan) -> float:
    """Plays the plan's journal and writes it to the plan's target. Returns the recording's length in seconds.

    Raises:
        UsageError: there is no such theme.
        FolderUnwritable: the file cannot be written.
    """
    theme = plan.theme or plan.settings.theme or DEFAULT
    header = plan.header
    if isinstance(header, DuelHeader):
        work = record_duel(plan.journal, header, plan.settings, plan.size, theme, plan.speed)
    else:
        work = record_run(plan.journal, header, plan.settings, plan.size, theme, plan.speed)
    recording = asyncio.run(work)
    if plan.target.suffix.lower() == ".cast":
        text = "\n".join(asciicast(recording, header.created)) + "\n"
    else:
        found = next((each for each in load_themes((FOLDER,))[0] if each.name == theme), None)
        foreground = (found.foreground if found else None) or "#c8d0d8"
        background = (found.background if found else None) or "#0f1318"
        text = animated_svg(recording, foreground, background)
    try:
        write_atomically(plan.target, text.encode())
    except OSError as error:
        raise unwritable(plan.target.absolute().parent, error, NAMED) from None
    return recording.length
