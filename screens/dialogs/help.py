"""Help: the keys as they are now, how judging works, a first kernel in five minutes."""

from dataclasses import dataclass
from typing import Any

from textual.binding import Binding
from textual.screen import Screen

from problems.specification import CLASSES
from screens.actions import ACTIONS, Scope, key_words
from screens.dialogs.reader import Reader

_NAMES: dict[Scope, str] = {
    "kernel": "at a kernel",
    "problems": "in the list of problems",
    "duel": "in a duel",
    "replay": "in a duel that is replayed",
    "model": "while a model writes",
    "campaign": "in a campaign",
    "profile": "at a profile",
    "everywhere": "everywhere",
}
_ORDER = tuple(_NAMES)
_LOG = "In the log: digits show one rank, `a` all of them, enter jumps to the line that a message names."

JUDGING = """
## How a kernel is judged

1. **load**: your file is imported on every rank of a fresh world. **compile**: what it compiles is
   compiled.
2. **check**: inputs nobody could know in advance, new for every call. Every rank's output is compared
   with a float64 oracle; your error is held against the baseline's own error. The meters show how much of
   each limit is used.
3. **time**: baseline and kernel take turns on the same inputs, in random order, on the referee's clock;
   the slowest rank counts. The speedup is baseline time over kernel time; its 99 % interval narrows with
   every round. A measurement that is settled ends after a second (the setting `budget_s`); it goes on up to
   four times as long where noise asks for it.
4. There are two clocks: **calls**, host work included, and on GPUs the work **on the device** alone. The
   headline is by calls; it is by the device where calls are too noisy to tell. It always names its clock.
5. **▲ faster** and **▼ slower** are only said when the whole interval lies on that side of 1; else it is
   **≈ even**, or **~ too noisy** when neither clock can tell. "Would have seen 8 %" means: a difference of
   8 % would most likely have been found. ctrl+l measures on: the same revision, with a longer budget.

The outputs that are checked are the outputs that were timed. Every run ends in exactly one verdict, and with
a line that says what to do about it.
"""
_CLASS_HEAD = "A problem's class says what there is to gain:"

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


_KNOWN = {"up", "down", "left", "right", "home", "end", "pageup", "pagedown", "backspace", "delete"}
"""Keys that do the same in every text: nobody looks them up."""


@dataclass(frozen=True)
class FocusKeys:
    """The keys of what has the focus."""

    title: str
    rows: list[tuple[str, str]]
    """Keys, and what they do."""


def keys_in_focus(screen: Screen[Any]) -> FocusKeys | None:
    """The keys of the widget with the focus; None where it has none of its own."""
    focused = screen.focused
    if focused is None:
        return None
    own = {binding.action for binding in type(focused).BINDINGS if isinstance(binding, Binding)}
    keys: dict[str, list[str]] = {}
    written: dict[str, str] = {}  # one of several bindings may say how all of them are written: "0-7"
    first: set[str] = set()
    for key, (node, binding, _, _) in screen.active_bindings.items():
        if node is focused and binding.description and (binding.action in own or key not in _KNOWN):
            does = binding.description.lower()
            keys.setdefault(does, []).append(key_words(key))
            if binding.key_display:
                written[does] = binding.key_display.replace("^", "ctrl+")
            if binding.action in own:
                first.add(does)
    title = focused.BINDING_GROUP_TITLE or ""
    rows = [(written.get(does) or " or ".join(dict.fromkeys(names)), does) for does, names in keys.items()]
    rows.sort(
        key=lambda row: row[1] not in first
    )  # what it adds to its kind comes before what every such widget has
    return FocusKeys(title, rows) if rows else None


def class_lines() -> str:
    """The classes of problems, each with its meaning."""
    return "\n".join([_CLASS_HEAD, "", *(f"- **{name}**: {words}" for name, words in CLASSES.items())])


def help_pages(
    keymap: dict[str, str], scope: Scope = "everywhere", focus: FocusKeys | None = None
) -> list[str]:
    """The sections for the keys that are in force: first those of the screen that asks, and of what has its focus."""
    scopes: list[Scope] = [scope, *(other for other in _ORDER if other != scope)]
    tables = [_key_table(other, keymap) for other in scopes]
    first, rest = (tables[:1], tables[1:]) if scope != "everywhere" else ([], tables)
    if focus is not None:
        first = [
            *first,
            _table(": ".join(filter(None, ("Keys of the pane with the focus", focus.title))), focus.rows),
        ]
    changing = "Every key can be another one: open the settings, then `keymap`."
    return [*first, FIRST_KERNEL.strip(), f"{JUDGING.strip()}\n\n{class_lines()}", *rest, changing]


def _key_table(scope: Scope, keymap: dict[str, str]) -> str:
    rows = [
        (key_words(keymap.get(action.name, action.key)), action.help)
        for action in ACTIONS
        if action.scope == scope
    ]
    if scope == "everywhere":
        rows.append(
            ("ctrl+p", "Command palette: everything above by name, themes, and problems by a few letters.")
        )
    table = _table(f"Keys {_NAMES[scope]}", rows)
    return f"{table}\n\n{_LOG}" if scope == "kernel" else table


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    return "\n".join(
        [
            f"## {title}\n",
            "| key | what it does |",
            "|---|---|",
            *(f"| {keys} | {does} |" for keys, does in rows),
        ]
    )


class HelpScreen(Reader):
    """The help page."""

    def __init__(
        self, keymap: dict[str, str], scope: Scope = "everywhere", focus: FocusKeys | None = None
    ) -> None:
        super().__init__("Help", *help_pages(keymap, scope, focus))
