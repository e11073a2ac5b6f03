"""`pkb-arena replay` of a duel: at once, or at a multiple of its pace."""

import time
from pathlib import Path

from arena.cli.duel.duel_lines import duel_line
from arena.cli.output import print_json, print_line
from arena.duel.card import text_card
from arena.duel.events import DuelHeader
from arena.duel.journal import read_duel, read_duel_header
from arena.duel.state import DuelState
from arena.paths import Paths


def find_duel(name: str, paths: Paths) -> tuple[Path, DuelHeader] | None:
    """The duel's journal that a name stands for (an id, or a file), or None when it is no duel."""
    for path in (Path(name), paths.duels / f"{name}.jsonl"):
        try:
            return path, read_duel_header(path)
        except (OSError, ValueError):
            continue
    return None


def tell_duel(path: Path, header: DuelHeader, speed: float | None, as_json: bool) -> None:
    """Prints a duel's events, with their pauses divided by `speed`; None: at once."""
    state = DuelState(header)
    if as_json:
        print_json(header)
    for event in read_duel(path):
        if speed is not None:
            time.sleep(max(0.0, event.at - state.at) / speed)
        state.apply(event)
        if as_json:
            print_json(event)
        elif line := duel_line(header, event):
            print_line(line)
    if state.ended is not None and not as_json:
        print_line()
        print_line(text_card(header, state.ended))
