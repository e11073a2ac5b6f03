"""The user's own keys: which are invalid, and which actions share one."""

import re
import unicodedata

from textual.keys import KEY_NAME_REPLACEMENTS, Keys

from screens.actions import ACTIONS, Action, Scope, action_named

_MODIFIERS = {"ctrl", "shift", "alt", "super", "hyper", "meta"}
_NAMED = {key.value for key in Keys} | set(KEY_NAME_REPLACEMENTS.values())
_SPACES = ["ctrl+space", "ctrl+@"]
_TYPED: tuple[Scope, ...] = ("kernel", "duel")
"""Screens with an editor. Their keys have priority, so a letter among them could no longer be typed."""
_EDITING = {"enter", "tab", "backspace", "delete", "space", "up", "down", "left", "right", "home", "end"}


def keys_of(action: Action, keymap: dict[str, str]) -> list[str]:
    """The current keys of an action."""
    return [key.strip() for key in (keymap.get(action.name) or action.key).split(",")]


def is_key(key: str) -> bool:
    """Whether Textual knows a key of this name: "f5", "ctrl+r", "slash", "D"."""
    *modifiers, last = key.split("+")
    if not set(modifiers) <= _MODIFIERS:
        return False
    if key in _NAMED or last in _NAMED or re.fullmatch(r"\w", last):
        return True
    try:
        unicodedata.lookup(last.replace("_", " "))
    except KeyError:
        return False
    return len(last) > 1


def as_sent(keymap: dict[str, str]) -> dict[str, str]:
    """The keymap for Textual, with both names of keys that terminals send in two ways: "shift+f5" and "f17", "ctrl+space"."""
    found = {}
    for name, keys in keymap.items():
        names = [key.strip() for key in keys.split(",")]
        for key in list(names):
            if key in _SPACES:
                names += _SPACES
            elif match := re.fullmatch(r"shift\+f(\d+)", key):
                names.append(f"f{int(match[1]) + 12}")
            elif (match := re.fullmatch(r"f(\d+)", key)) and int(match[1]) > 12:
                names.append(f"shift+f{int(match[1]) - 12}")
        found[name] = ",".join(dict.fromkeys(names))
    return found


def refusal(action: Action, key: str) -> str:
    """Why an action cannot have this key; empty when it can."""
    if not is_key(key):
        return f"{key!r} is no key; it is written like ctrl+r, f7, slash or n"
    if key in ("shift+f3", "f15"):
        return "to most terminals shift+F3 is no key but a report of the cursor's place; take another one"
    if action.scope in _TYPED and (len(key) == 1 or key in _EDITING):
        return f"{key} is needed to type in the editor; take one with ctrl, or a function key"
    return ""


def rivals(action: Action, keymap: dict[str, str]) -> list[Action]:
    """The other actions that share one of its keys on the same screen."""
    mine = set(keys_of(action, keymap))
    return [
        other
        for other in ACTIONS
        if other is not action
        and (other.scope == action.scope or "everywhere" in (other.scope, action.scope))
        and mine.intersection(keys_of(other, keymap))
    ]


def keymap_fault(keymap: dict[str, str]) -> str:
    """The first error of a keymap, in a sentence; empty if there is none."""
    for name in keymap:
        action = action_named(name)
        if action is None:
            return f"there is no action {name!r}"
        for key in keys_of(action, keymap):
            if refused := refusal(action, key):
                return f"{name}: {refused}"
        if others := rivals(action, keymap):
            return f"{name} and {others[0].name} have the same key, {keymap[name]}"
    return ""
