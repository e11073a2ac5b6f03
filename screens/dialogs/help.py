"""The help page: current keys, signs, how a kernel is judged, a first kernel in five minutes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.dom import DOMNode
from textual.events import Resize
from textual.screen import Screen
from textual.widget import Widget

from problems.specification import CLASSES
from screens.actions import ACTIONS, SCOPE_WORDS, Scope, key_words
from screens.base import BaseScreen
from screens.dialogs import Dialog, Reader
from screens.widgets.text_lines import FittedText, hanging

_PAGE = Path(__file__).with_name("help.md").read_text(encoding="utf-8")
SIGNS, FIRST_KERNEL, JUDGING, TERMS, LOG, VIM = (
    section.strip() for section in re.split(r"^(?=## )", _PAGE, flags=re.MULTILINE)[1:]
)
_KNOWN = {
    *("up", "down", "left", "right", "home", "end", "backspace", "delete"),
    *("pageup", "pagedown", "ctrl+pageup", "ctrl+pagedown"),
}
"""Keys that do the same in every text field; not listed."""
_SELDOM_SENT = re.compile(r"super\+.*|ctrl\+shift\+\w|ctrl\+backspace")
"""Keys of Textual's own widgets that most terminals do not send: they are left out."""
_OURS = f"{__name__.partition('.')[0]}."
DIALOG = "of this dialog"


@dataclass(frozen=True)
class FocusKeys:
    """The keys of the widget with the focus: keys, and what they do."""

    title: str
    rows: list[tuple[str, str]]
    """The keys that its class adds."""
    others: list[tuple[str, str]] = field(default_factory=list)
    """The keys that every widget of its kind has."""
    place: str = "of the pane with the focus"


def keys_in_focus(screen: Screen[Any]) -> list[FocusKeys]:
    """Returns the keys of the focused widget, of those around it and of the dialog; leaves out those without keys."""
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
    """Returns the keys that `node`'s class adds, and the others.

    Textual's own widgets, and ours without a BINDING_GROUP_TITLE, add none.
    """
    kinds = type(node).__mro__ if isinstance(node, Screen) else type(node).__mro__[: bool(node.BINDING_GROUP_TITLE)]
    ours = [kind for kind in kinds if kind.__module__.startswith(_OURS) and issubclass(kind, DOMNode)]
    added_here = [binding for kind in ours for binding in vars(kind).get("BINDINGS", ())]
    own = {binding.action for binding in added_here if isinstance(binding, Binding)}
    own = {action for action in own if not action.startswith("app.")}  # listed with the keys that work everywhere
    keys: dict[str, list[str]] = {}
    written: dict[str, str] = {}  # one of several bindings may have a `key_display` for all: "0-7"
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


def show_keys_beside(screen: BaseScreen, *, shown: bool) -> None:
    """Shows a panel with the keys of a screen beside it, or removes it."""
    panels, size = screen.query("#keys-beside"), screen.app.size
    if shown and panels:
        panels.first().query_one(FittedText).refresh(layout=True)
        return
    panels.remove()
    if shown and screen.is_attached:
        screen.mount(VerticalScroll(FittedText(partial(_keys_beside, screen)), id="keys-beside", can_focus=False))
    screen._screen_resized(size)  # its panes have other columns
    screen.post_message(Resize(size, size))


def _keys_beside(screen: BaseScreen, width: int) -> list[Content]:
    """Returns the keys of the pane with the focus, then those of its screen, then those that work everywhere."""
    pane = dict(row for keys in keys_in_focus(screen) for row in keys.rows)
    actions = (each for scope in (screen.SCOPE, "everywhere") for each in ACTIONS if each.scope == scope)
    others = {screen.key_words(each.name): each.title for each in actions}
    vim = screen.services.settings.vim and screen.SCOPE in ("kernel", "duel")
    rows = pane | others | pane | ({"keys of vim": "see the help"} if vim else {})  # the pane's keys first
    labels = {key: Content.styled(f"{key:>16}", "$accent") for key in rows}
    return [line for key, does in rows.items() for line in hanging(labels[key], Content(does), width, 18)]


def help_pages(
    keymap: dict[str, str], scope: Scope = "everywhere", focus: Sequence[FocusKeys] = (), shown: str = ""
) -> list[str]:
    """Returns the sections of the help: the keys of the widget with the focus, those of the screen, its terms, the rest.

    shown: the text on the screen.
    """
    scopes: list[Scope] = [scope, *(other for other in SCOPE_WORDS if other != scope)]
    tables = [_key_table(other, keymap) for other in scopes]
    first, rest = (tables[:1], tables[1:]) if scope != "everywhere" else ([], tables)
    known = {key_words(keymap.get(action.name, action.key)) for action in ACTIONS if action.scope == scope}
    near = []
    for keys in focus:
        # keys in the screen's table are not listed twice; a dialog's keys are in no such table
        rows = keys.rows if keys.place == DIALOG else [row for row in keys.rows if row[0] not in known]
        if rows:
            near.append(_table(_titled(f"Keys {keys.place}", keys), rows))
    more = [_table(_titled(f"More keys {keys.place}", keys), keys.others) for keys in focus if keys.others]
    changing = "Every key can be changed: open the settings, then `keymap`."
    classes = (f"- **{name}**: {words}" for name, words in CLASSES.items())
    judging = "\n".join([JUDGING, "", *classes])
    here = filter(None, [terms_on(shown)])
    return [*near, *first, *more, *here, SIGNS, FIRST_KERNEL, judging, TERMS, *rest, changing]


def _titled(words: str, keys: FocusKeys) -> str:
    return ": ".join(filter(None, (words, keys.title)))


def _key_table(scope: Scope, keymap: dict[str, str]) -> str:
    rows = [
        (key_words(keymap.get(action.name, action.key)), action.help) for action in ACTIONS if action.scope == scope
    ]
    table = _table(f"Keys {SCOPE_WORDS[scope]}", rows)
    notes = {"kernel": [LOG, VIM], "duel": [VIM]}.get(scope, [])
    return "\n\n".join([table, *(note.partition("\n\n")[2] for note in notes)])


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    return "\n".join(
        [f"## {title}\n", "| key | what it does |", "|---|---|", *(f"| {keys} | {does} |" for keys, does in rows)]
    )


def terms_on(shown: str) -> str:
    """Returns the sentences of the terms that are on the screen. shown: the text on the screen."""
    rows = re.split(r"\n(?=-)", TERMS.partition("\n\n")[2])
    named = [(re.findall(r"\*\*(.+?)\*\*", row.partition(":")[0]), row) for row in rows]  # "- **A**, **B**: ..."
    here = [row for names, row in named if any(re.search(rf"(?<!\w){re.escape(each)}(?!\w)", shown) for each in names)]
    return "\n".join(["## Terms on this screen\n", *here]) if here else ""


class HelpScreen(Reader):
    """The help."""

    def on_mount(self) -> None:
        self.name_keys(f"letters search · {self.key_words('help')} keys beside it · esc back")
