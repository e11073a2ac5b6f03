"""All actions in one table. Keys, footer, command palette and help are made from it."""

import re
import tomllib
from pathlib import Path
from typing import Literal

import msgspec
from textual.binding import Binding

Scope = Literal["everywhere", "problems", "kernel", "duel", "replay", "model", "sweep", "profile"]
SCOPE_WORDS: dict[Scope, str] = {
    "problems": "in the list of problems",
    "kernel": "at a kernel",
    "duel": "in a duel",
    "replay": "in the replay of a duel",
    "model": "while a model writes",
    "sweep": "in a sweep",
    "profile": "at a profile",
    "everywhere": "everywhere",
}


class Action(msgspec.Struct, frozen=True, array_like=True):
    """One action of the user."""

    scope: Scope
    name: str
    """Also the key of a remapping in the settings file: `[keymap] run = "ctrl+r"`."""
    key: str
    title: str
    """One or two words for the footer."""
    help: str
    """A sentence for the help screen and the palette."""
    show: bool = True
    """Shown in the footer."""


_TABLE = Path(__file__).with_name("actions.toml").read_text(encoding="utf-8")
ACTIONS: tuple[Action, ...] = msgspec.convert(tomllib.loads(_TABLE)["actions"], tuple[Action, ...])
PLACES = ("new", "board", "duel_board", "sweeps", "demo")
"""Actions of the list of problems that the menu offers on every screen: a new kernel for its problem, and other places."""
_KEY_WORDS = {
    "escape": "esc",
    "slash": "/",
    "question_mark": "?",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "pageup": "page up",
    "pagedown": "page down",
    "minus": "-",
    "plus": "+",
    "ctrl+@": "ctrl+space",  # as terminals send it
}


def key_words(keys: str) -> str:
    """Returns keys as shown on the screen: "F7", "esc", "ctrl+l", "/". keys: one or more, separated by commas."""
    words = []
    names = keys.split(",")
    shifted = {f"f{int(number) + 12}" for number in re.findall(r"shift\+f(\d+)", keys)}
    for sent in names:
        key = sent
        if key in shifted or (key.startswith("shift+") and key.removeprefix("shift+").upper() in names):
            continue  # a second name of the same key: terminals send it in two ways
        if (match := re.fullmatch(r"f(\d+)", key)) and int(match[1]) > 12:
            key = f"shift+f{int(match[1]) - 12}"  # as most terminals send it
        function_key = re.fullmatch(r"(?:\w+\+)*f\d+", key)
        words.append(re.sub(r"f(\d+)$", r"F\1", key) if function_key else _KEY_WORDS.get(key, key))
    return " or ".join(dict.fromkeys(words))


def short_key_words(key: str) -> str:
    """A key as it is written where there is little room: "^s", "F5", "⇧F2"."""
    return key_words(key).replace("ctrl+", "^").replace("shift+", "⇧")


def bindings(scope: Scope) -> list[Binding]:
    """The bindings of one scope for a class's BINDINGS; their ids make them remappable.

    Keys of kernels, duels and replays have priority over the editor's own, which uses some of them otherwise.
    """
    return [
        Binding(
            action.key,
            action.name,
            action.title,
            show=action.show,
            id=action.name,
            tooltip=action.help,
            priority=scope in ("kernel", "duel", "replay") or action.name == "command_palette",
        )
        for action in ACTIONS
        if action.scope == scope
    ]


def action_named(name: str) -> Action | None:
    """The action of this name, if there is one."""
    return next((action for action in ACTIONS if action.name == name), None)


def key_of(name: str, keymap: dict[str, str]) -> str:
    """The first key of an action as it is written on the screen: "F7", "ctrl+l"."""
    key = keymap.get(name) or next(action.key for action in ACTIONS if action.name == name)
    return key_words(key).partition(" or ")[0]
