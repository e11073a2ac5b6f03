"""The help page: current keys, signs, how a kernel is judged, a first kernel in five minutes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

from problems.specification import CLASSES
from screens.actions import ACTIONS, Scope, key_words
from screens.dialogs.dialog import Dialog, Reader

PLACES: dict[Scope, str] = {
    "problems": "in the list of problems",
    "kernel": "at a kernel",
    "duel": "in a duel",
    "replay": "in the replay of a duel",
    "model": "while a model writes",
    "sweep": "in a sweep",
    "profile": "at a profile",
    "everywhere": "everywhere",
}
_LOG = "In the log: digits show one rank, `a` all ranks, `y` copies the line, enter jumps to the line that a message names."

SIGNS = """
## Signs

| sign | meaning |
|---|---|
| ▲ ▼ | faster or slower than the baseline: the whole 99 % interval lies on that side of 1 |
| ≈ | same speed: a larger difference than the smallest detectable one would have been found |
| ~ | too noisy: the interval is too wide for an answer, so it is shown in place of a speedup |
| ✓ ✗ | correct, or failed: wrong result, error, deadline |
| ! | the harness failed, not the kernel |
| ★ | best kernel, or winner of a duel |
| ▸ · | in progress, not started |
| – | cancelled, or no result |

**Too noisy** is normal on laptops: other programs and changing clock rates disturb short calls. ctrl+l measures longer.
Fewer ranks than cores, a power cable and closed browsers help, too.
"""
JUDGING = """
## How a kernel is judged

1. **load** imports your file on every rank of a fresh world. **compile** compiles what it contains.
2. **check** runs it on new random inputs. Every rank's output is compared with a float64 oracle. The error limits
   come from the baseline's own error; the meters show how much of each limit is used.
3. **time** runs baseline and kernel in turn on the same inputs, in random order. The slowest rank counts. The speedup
   is baseline time over kernel time. Its 99 % interval narrows with every round. Timing ends after the budget (setting
   `budget_s`), or after up to four times as long where noise requires it.
4. There are two clocks. **End-to-end** time includes host work. **Device time** is the GPU's work alone. The headline
   is end-to-end; it is device time where end-to-end time is too noisy. It always names its clock.
5. The **smallest detectable difference** says how good a measurement is. "Detects 8 %": a difference of 8 % would most
   likely have been found.

Kernels run **isolated**: without network, in a file system of their own. The doctor (F12) says how, on this machine.
The outputs of timed calls are checked, too. Every run ends with exactly one verdict and an advice.
"""
_CLASS_HEAD = "The class of a problem says where speed can be gained:"

FIRST_KERNEL = """
## A first kernel in five minutes

1. Choose a problem and press enter. The editor opens with a correct kernel: a copy of the baseline.
2. Press ctrl+s. It is judged: ✓ PASS, and ≈ same speed or ~ too noisy, because it is the baseline.
3. Change it. `def solution(...)` gets this rank's tensors and returns this rank's result. The card describes both.
4. Save again, here or in any other editor. Every save starts a run. A wrong element is shown with its rank and index.
5. `from sandbox.kit import symm` gives access to the memory of other ranks: `symm.peers(t)` is the same tensor on all
   ranks.
6. The history (F6) has every version that you ran, with its verdict. Unsaved text is kept as a draft.
"""


_KNOWN = {
    *("up", "down", "left", "right", "home", "end", "backspace", "delete"),
    *("pageup", "pagedown", "ctrl+pageup", "ctrl+pagedown"),
}
"""Keys that do the same in every text."""
_SELDOM_SENT = re.compile(r"super\+.*|ctrl\+shift\+\w|ctrl\+backspace")
"""Keys of Textual's own widgets that most terminals do not send: they are left out."""


_OURS = f"{__name__.partition('.')[0]}."
DIALOG = "of this dialog"


@dataclass(frozen=True)
class FocusKeys:
    """The keys of the widget with the focus: keys, and what they do."""

    title: str
    rows: list[tuple[str, str]]
    """Its own."""
    others: list[tuple[str, str]] = field(default_factory=list)
    """What every widget of its kind has."""
    place: str = "of the pane with the focus"


def keys_in_focus(screen: Screen[Any]) -> list[FocusKeys]:
    """The keys of the widget with the focus, and of the dialog around it; those that have none of their own are left out."""
    found = []
    around = screen.focused.ancestors_with_self if screen.focused is not None else []
    for node in (node for node in around if isinstance(node, Widget) and not isinstance(node, Screen)):
        own, others = _keys_of(screen, node)
        found.append(FocusKeys(node.BINDING_GROUP_TITLE or "", own, others))
    if isinstance(screen, Dialog):
        own, _ = _keys_of(screen, screen)
        title = "".join(str(node.border_title or "") for node in screen.query(".dialog")).partition(" · ")[0]
        found.append(FocusKeys(title, own, place=DIALOG))
    return [keys for keys in found if keys.rows or keys.others]


def _keys_of(screen: Screen[Any], node: DOMNode) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What `node` adds to its kind, and what every such node has. Textual's own widgets, and ours without a name, add nothing."""
    kinds = (
        type(node).__mro__
        if isinstance(node, Screen)
        else type(node).__mro__[: bool(node.BINDING_GROUP_TITLE)]
    )
    ours = [kind for kind in kinds if kind.__module__.startswith(_OURS) and issubclass(kind, DOMNode)]
    added_here = [binding for kind in ours for binding in vars(kind).get("BINDINGS", ())]
    own = {binding.action for binding in added_here if isinstance(binding, Binding)}
    own = {action for action in own if not action.startswith("app.")}  # those are among the keys everywhere
    keys: dict[str, list[str]] = {}
    written: dict[str, str] = {}  # one of several bindings may say how all of them are written: "0-7"
    added: set[str] = set()
    for key, (owner, binding, _, _) in screen.active_bindings.items():
        known = binding.action not in own and (key in _KNOWN or _SELDOM_SENT.fullmatch(key))
        if owner is node and binding.description and not known:
            does = binding.description.lower()
            keys.setdefault(does, []).append(key_words(key))
            if binding.key_display:
                written[does] = binding.key_display.replace("^", "ctrl+")
            if binding.action in own:
                added.add(does)
    rows = {does: written.get(does) or " or ".join(dict.fromkeys(names)) for does, names in keys.items()}
    return (
        [(words, does) for does, words in rows.items() if does in added],
        [(words, does) for does, words in rows.items() if does not in added],
    )


def class_lines() -> str:
    """The classes of problems, each with its meaning."""
    return "\n".join([_CLASS_HEAD, "", *(f"- **{name}**: {words}" for name, words in CLASSES.items())])


def help_pages(
    keymap: dict[str, str], scope: Scope = "everywhere", focus: Sequence[FocusKeys] = ()
) -> list[str]:
    """The sections for the keys that are in force: first those of what has the focus, then those of the screen that asks."""
    scopes: list[Scope] = [scope, *(other for other in PLACES if other != scope)]
    tables = [_key_table(other, keymap) for other in scopes]
    first, rest = (tables[:1], tables[1:]) if scope != "everywhere" else ([], tables)
    known = {key_words(keymap.get(action.name, action.key)) for action in ACTIONS if action.scope == scope}
    near = []
    for keys in focus:
        # what the screen's table says in a sentence is not said twice; a dialog's keys are its own
        rows = keys.rows if keys.place == DIALOG else [row for row in keys.rows if row[0] not in known]
        if rows:
            near.append(_table(_titled(f"Keys {keys.place}", keys), rows))
    more = [_table(_titled(f"More keys {keys.place}", keys), keys.others) for keys in focus if keys.others]
    changing = "Every key can be changed: open the settings, then `keymap`."
    judging = f"{JUDGING.strip()}\n\n{class_lines()}"
    return [*near, *first, *more, SIGNS.strip(), FIRST_KERNEL.strip(), judging, *rest, changing]


def _titled(words: str, keys: FocusKeys) -> str:
    return ": ".join(filter(None, (words, keys.title)))


def _key_table(scope: Scope, keymap: dict[str, str]) -> str:
    rows = [
        (key_words(keymap.get(action.name, action.key)), action.help)
        for action in ACTIONS
        if action.scope == scope
    ]
    table = _table(f"Keys {PLACES[scope]}", rows)
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
        self, keymap: dict[str, str], scope: Scope = "everywhere", focus: Sequence[FocusKeys] = ()
    ) -> None:
        super().__init__("Help", *help_pages(keymap, scope, focus))
