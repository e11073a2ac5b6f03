"""The key editor: every action with its key. The next key pressed becomes the key of the action under the cursor."""

from pathlib import Path
from typing import Any, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from screens.actions import ACTIONS, SCOPE_WORDS, Action, key_words
from screens.app_protocol import Layer
from screens.dialogs import Dialog
from screens.figures import cut
from screens.keymap import keys_of, refusal, rivals
from screens.widgets.tables import FilterInput
from screens.widgets.text_lines import PlainStatic, follow_width

_MARK, _KEY, _TITLE = 2, 12, 15
"""Widths of the columns; the help has the rest, if that is at least `_LEAST_HELP`."""
_LEAST_HELP = 20
_SCROLLBAR = 2


class NextKey(ModalScreen[str], Layer[str], inherit_bindings=False):
    """Catches one key, whatever it does elsewhere, and dismisses with its name."""

    CSS_PATH: ClassVar[Any] = Dialog.CSS_PATH

    def __init__(self, action: Action) -> None:
        super().__init__()
        self._action = action

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog small") as dialog:
            dialog.border_title = f"A key for: {self._action.title}"
            yield PlainStatic(self._action.help)
            yield PlainStatic(
                Content.assemble(("Press the key.", "bold $accent"), ("  esc leaves it as it is.", "$muted")),
                classes="below",
            )

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        self.dismiss("" if event.key == "escape" else event.key)


class KeyEditor(Dialog[dict[str, str] | None]):
    """Dismisses with the keymap: the keys that differ from the usual ones. It never saves two actions with one key."""

    CSS_PATH: ClassVar[Any] = [*Dialog.CSS_PATH, Path(__file__).with_name("key_editor.tcss")]
    SEARCHES = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "save", "save", priority=True),
        Binding("slash", "filter", "search"),
        Binding("backspace,delete", "reset", "usual key"),
        Binding("ctrl+r", "reset_all", "all usual keys"),
    ]

    def __init__(self, keymap: dict[str, str]) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (80, "-wide")]
        names = {action.name for action in ACTIONS}
        self._keymap = {name: key for name, key in keymap.items() if name in names}
        self._dropped = sorted(set(keymap) - names)

    def compose(self) -> ComposeResult:
        with self.frame("Keys", "enter changes · ^s saves · ⌫ resets · / search · esc", classes="large"):
            yield FilterInput("words of an action", id="search", of="#actions")
            yield OptionList(id="actions")
            yield PlainStatic("", id="sentence")
            yield PlainStatic("", id="report")

    def on_mount(self) -> None:
        actions = self.query_one("#actions", OptionList)
        self._show()
        actions.highlighted = 1
        actions.focus()
        follow_width(actions, self._show)
        unknown = ", ".join(self._dropped)
        self._report(f"the settings file names no action with {unknown}: saving drops it" if unknown else "")

    def _line(self, action: Action) -> Content:
        changed, clash = action.name in self._keymap, bool(rivals(action, self._keymap))
        colour = "$error" if clash else "$accent" if changed else "$foreground"
        mark = "✗" if clash else "•" if changed else ""
        room = self.query_one("#actions").content_size.width - (_MARK + _KEY + _TITLE + _SCROLLBAR)
        return Content.assemble(
            (f"{mark:<{_MARK}}{key_words(','.join(keys_of(action, self._keymap))):<{_KEY}}", colour),
            f"{action.title:<{_TITLE}}",
            (cut(action.help, room) if room >= _LEAST_HELP else "", "$muted"),
        )

    @on(Input.Changed)
    def _show(self) -> None:
        """Lists the actions that the search leaves, in groups; the cursor keeps its row."""
        actions, search = self.query_one("#actions", OptionList), self.query_one(FilterInput)
        at = actions.highlighted
        rows: list[Option] = []
        for scope, place in SCOPE_WORDS.items():
            here = [action for action in ACTIONS if action.scope == scope]
            own = [each for each in here if search.finds(f"{each.title} {each.help}")]
            head = Option(Content.styled(place.capitalize(), "bold $accent"), disabled=True)
            rows += [*([Option("", disabled=True)] if rows else []), head] if own else []
            rows += [Option(self._line(action), id=action.name) for action in own]
        actions.set_options(rows)
        actions.highlighted = 1 if search.words else at
        self._explain()

    def _report(self, fault: str = "") -> None:
        if fault:
            self.refuse(fault)
        else:
            count = len(self._keymap)
            self.report("the usual keys" if not count else f"{count} key{'s' if count > 1 else ''} of your own")

    def _current(self) -> Action | None:
        actions = self.query_one("#actions", OptionList)
        option = actions.highlighted_option
        return next((action for action in ACTIONS if option is not None and action.name == option.id), None)

    @on(OptionList.OptionHighlighted, "#actions")
    def _explain(self) -> None:
        action = self._current()
        sentence = self.query_one("#sentence", PlainStatic)
        if action is None:
            sentence.update("")
            return
        others, changed = rivals(action, self._keymap), action.name in self._keymap
        sentence.update(
            Content.assemble(
                action.help,
                (f" Also the key of “{others[0].title}”." if others else "", "$error"),
                (f" The usual key is {key_words(action.key)}." if changed else "", "$accent"),
            )
        )

    @on(OptionList.OptionSelected, "#actions")
    def _ask(self) -> None:
        action = self._current()
        if action is not None:
            self.app.push_screen(NextKey(action), lambda key: self._take(action, key or ""))

    def _take(self, action: Action, key: str) -> None:
        if not key:
            return
        if refused := refusal(action, key):
            self._report(refused)
            return
        self._keymap[action.name] = key
        if key in action.key.split(","):
            del self._keymap[action.name]
        self._changed()

    def _changed(self) -> None:
        self._show()
        self._report(self._clash())

    def action_reset(self) -> None:
        """The action under the cursor gets its usual key back."""
        if (action := self._current()) is not None:
            self._keymap.pop(action.name, None)
            self._changed()

    def action_reset_all(self) -> None:
        self._keymap.clear()
        self._changed()

    def _clash(self) -> str:
        for action in ACTIONS:
            for other in rivals(action, self._keymap):
                shared = set(keys_of(action, self._keymap)) & set(keys_of(other, self._keymap))
                key = key_words(min(shared))
                return f"{key} is the key of both “{action.title}” and “{other.title}”: give one of them another"
        return ""

    def action_save(self) -> None:
        if fault := self._clash():
            self.app.bell()
            self._report(f"not saved: {fault}")
            return
        self.dismiss(self._keymap)
