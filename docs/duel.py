"""Records the duels of docs/guide/duels.md and draws their cards: a file or the house kernel against a stand-in for a model.

    python docs/duel.py record you|house    plays it and writes its journal
    python docs/duel.py draw you|house      draws its card from the journal

The stand-in (stand_in.py) answers over the protocol of a model. The judge, its verdicts and the final are those of any duel.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from stand_in import FORGETS_THE_BARRIER, GATHERS, NAME, RIGHT, serve

HERE = Path(__file__).resolve().parent
NAMES = {"you": "duel", "house": "duel-house"}


def record(left: str) -> None:
    """Plays the duel in a folder of its own and keeps its journal."""
    from arena.settings import ModelSettings, Settings, save_settings

    address = serve([FORGETS_THE_BARRIER, RIGHT])
    model = ModelSettings(provider="openai_chat", model=NAME, base_url=address, tools=False)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PKB_ARENA_HOME"] = folder
        from arena.paths import find_paths

        paths = find_paths()
        save_settings(Settings(device="cpu", world=2, models={NAME: model}), paths)
        kernel = Path(folder) / "kernel.py"
        kernel.write_text(GATHERS, encoding="utf-8")
        side = "kernel.py" if left == "you" else left
        command = ["duel", "1", "--left", side, "--right", f"agent:{NAME}", "--rounds", "2"]
        subprocess.run([sys.executable, "-m", "arena.cli", *command], cwd=folder, check=True)
        (journal,) = paths.duels.glob("*.jsonl")
        # The recorder's own folders do not belong into the recording.
        text = journal.read_text(encoding="utf-8").replace(f"{folder}/", "").replace(f"{HERE.parent}/", "")
        journal_of(left).write_text(text, encoding="utf-8")


def journal_of(left: str) -> Path:
    """Where a duel is recorded."""
    return HERE / f"{NAMES[left]}.jsonl"


def draw(left: str) -> None:
    """The recorded duel's card."""
    from arena.duel.card import svg_card
    from arena.duel.journal import read_duel, read_duel_header
    from arena.duel.state import DuelState

    recording = journal_of(left)
    state = DuelState(read_duel_header(recording))
    for event in read_duel(recording):
        state.apply(event)
    recording.with_suffix(".svg").write_text(svg_card(state), encoding="utf-8")


if __name__ == "__main__":
    {"record": record, "draw": draw}[sys.argv[1]](sys.argv[2])
