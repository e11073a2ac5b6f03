"""Help: the keys as they are now, how judging works, a first kernel in five minutes."""

from screens.actions import ACTIONS
from screens.reader import Reader

_NAMES = {"problems": "Problems", "arena": "Arena", "duel": "Duel", "everywhere": "Everywhere"}
_KEYS = {"escape": "esc", "slash": "/", "question_mark": "?"}

JUDGING = """
## How a kernel is judged

1. **load**: your file is imported on every rank of a fresh world. **compile**: what it compiles is
   compiled.
2. **check**: inputs nobody could know in advance, new for every call. Every rank's output is compared
   with a float64 oracle; your error is held against the baseline's own error. The meters show how much of
   each limit is used.
3. **time**: baseline and kernel take turns on the same inputs, in random order, on the referee's clock;
   the slowest rank counts. The speedup is baseline time over kernel time; its 95 % interval narrows with
   every round.
4. **▲ faster** and **▼ slower** are only said when the whole interval lies on that side of 1; else it is
   **≈ even**, or **~ too noisy** to tell.

The outputs that are checked are the outputs that were timed. Every run ends in exactly one verdict, and with
a line that says what to do about it.
"""

FIRST_KERNEL = """
## A first kernel in five minutes

1. Choose a problem and press enter. The editor opens with a kernel that is already right: the baseline
   itself.
2. Press ctrl+s. It is judged: ✓ PASS and ≈ even, since it is the baseline.
3. Change it. `def solution(...)` gets this rank's tensors and returns this rank's result; the card says
   what both are.
4. Save again, here or in any other editor: every save is judged at once. A wrong element is shown with
   its rank and index.
5. Peers' memory is one import away: `from sandbox.kit import symm`. `symm.peers(t)` are the same tensor
   on all ranks.
6. Every version you ran is in the history (F6), with its verdict. Nothing you typed is lost.
"""


def key_words(key: str) -> str:
    """A key as it is written on the screen."""
    return " or ".join(_KEYS.get(part, part) for part in key.split(","))


def help_text(keymap: dict[str, str]) -> str:
    """The help page for the keys that are in force."""
    parts = []
    for scope in ("arena", "problems", "duel", "everywhere"):
        parts.append(f"## {_NAMES[scope]}\n\n| key | what it does |\n|---|---|")
        rows = [
            f"| {key_words(keymap.get(action.name, action.key))} | {action.help} |"
            for action in ACTIONS
            if action.scope == scope
        ]
        if scope == "everywhere":
            rows.append(
                "| ctrl+p | Command palette: everything above by name, and problems by a few letters. |"
            )
        parts.append("\n".join(rows))
    log = "In the log: digits show one rank, `a` all of them, enter jumps to the line that a message names."
    return "\n\n".join(
        [FIRST_KERNEL.strip(), JUDGING.strip(), *[p.replace("|\n\n|", "|\n|") for p in parts], log]
    )


class HelpScreen(Reader):
    """The help page."""

    def __init__(self, keymap: dict[str, str]) -> None:
        super().__init__("Help", help_text(keymap))
