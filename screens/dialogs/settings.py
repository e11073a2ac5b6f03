"""The settings dialog, generated from the schema: each field with its description; and the key editor, which it opens."""

from pathlib import Path
from typing import Any, ClassVar

import msgspec
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList, Select
from textual.widgets.option_list import Option

from arena.errors import ArenaError
from arena.settings import SettingField, Settings, check_settings, setting_fields
from screens.actions import ACTIONS, SCOPE_WORDS, Action, key_words
from screens.app_protocol import Layer, arena_app, ask
from screens.dialogs import Dialog, field, one_of
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


AUTOMATIC = "(automatic)"


class SettingsScreen(Dialog[Settings | None]):
    """Checks every change at once. The key that saves a kernel also saves the settings. Editing the file works, too."""

    SEARCHES = True
    AUTO_FOCUS = CONTROLS = ".setting Input, .setting Select, .setting Button"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "save", "save", id="save", priority=True),
        Binding("slash", "filter", "search"),
    ]

    def __init__(self, settings: Settings, themes: list[str], file: str) -> None:
        super().__init__()
        self._settings, self._themes, self._file = settings, themes, file
        self._keymap = settings.keymap
        self._sure = False
        """Whether escape was pressed since the last change."""

    def compose(self) -> ComposeResult:
        keys = f"{self.key_words('save')} saves · / search · {self.key_words('jump')} letters · esc back"
        with self.frame("Settings", keys, classes="large"):
            yield FilterInput("words of a setting", id="search", of=self.CONTROLS)
            with VerticalScroll(can_focus=False):
                for setting in setting_fields():
                    sentence = PlainStatic(_sentence(setting), classes="sentence")
                    yield Vertical(field(setting.name, self._control(setting)), sentence, classes="setting")
            yield PlainStatic("", id="report")

    def on_mount(self) -> None:
        self._report()
        self.watch(self.app, "theme", self._theme_chosen, init=False)
        self.watch(self._list_of_themes.query_one(OptionList), "highlighted", self._preview, init=False)

    def _theme_chosen(self, theme: str) -> None:
        """Selects a theme that was set by the key for the next theme, so that saving stores the theme shown."""
        if theme in self._themes and not self._list_of_themes.expanded:
            self._list_of_themes.value = theme

    @property
    def _list_of_themes(self) -> Select[str]:
        return self.query_one("#set-theme", Select)

    def _preview(self, at: int | None) -> None:
        """Shows the theme under the cursor of the open list."""
        if at is not None and self._list_of_themes.expanded:
            self.app.theme = self._themes[at]

    @on(Select.Changed, "#set-theme")
    @on(DescendantFocus)
    def _show_chosen(self) -> None:
        """Shows the theme of the field again, after one in its list was only looked at."""
        if not self._list_of_themes.expanded and isinstance(self._list_of_themes.value, str):
            self.app.theme = self._list_of_themes.value

    def on_unmount(self) -> None:
        """Shows the theme of the settings again; saving them sets another."""
        arena_app(self).show_theme()

    @on(Input.Changed, "#search")
    def _search(self) -> None:
        for setting, shown in zip(setting_fields(), self.query(".setting"), strict=True):
            shown.display = self.query_one(FilterInput).finds(f"{setting.name} {_sentence(setting)}")

    @on(Input.Submitted)
    def _next_field(self) -> None:
        self.focus_next()

    def _control(self, setting: SettingField) -> Input | Select[str] | Select[bool] | Button:
        value = getattr(self._settings, setting.name)
        name = f"set-{setting.name}"
        if setting.name == "keymap":
            return Button(self._keymap_words(), id=name, compact=True)
        if setting.kind is bool:
            return one_of(name, {"no": False, "yes": True}, bool(value))
        choices = tuple(self._themes) if setting.name == "theme" else setting.choices
        if choices:
            options = {choice or AUTOMATIC: choice for choice in choices}
            return one_of(name, options, value if value in choices else choices[0])
        return Input(", ".join(value) if isinstance(value, list) else str(value), id=name, compact=True)

    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for setting in setting_fields():
            control = self.query_one(f"#set-{setting.name}")
            match control:
                case Select():
                    values[setting.name] = control.value
                case Input():
                    values[setting.name] = _value(setting, control.value)
                case Button():
                    values[setting.name] = self._keymap
        return values

    def _keymap_words(self) -> str:
        count = len(self._keymap)
        return f"edit keys…  ({f'{count} of your own' if count else 'the usual ones'})"

    @on(Button.Pressed, "#set-keymap")
    def _edit_keys(self, event: Button.Pressed) -> None:
        button = event.button

        def edited(keymap: dict[str, str]) -> None:
            self._keymap = keymap
            button.label = self._keymap_words()

        ask(self, KeyEditor(self._keymap), edited)

    def _read(self) -> Settings:
        checked = check_settings(self._values())
        shown = {each.name: getattr(checked, each.name) for each in setting_fields()}
        return msgspec.structs.replace(self._settings, **shown)  # what is not shown here stays as it is

    @on(Input.Changed)
    @on(Select.Changed)
    def _report(self) -> None:
        self._sure = False
        try:
            self._read()
        except ArenaError as error:
            self.refuse(error.one_line)
        else:
            self.report(f"file: {self._file}")

    def action_back(self) -> None:
        """Closes the search, or leaves; if something was changed, only on the second press of the key."""
        if self.query_one(FilterInput).close():
            return
        try:
            changed = self._read() != self._settings
        except ArenaError:
            changed = True
        if changed and not self._sure:
            self._sure = True
            self.report(f"! not saved: {self.key_words('save')} saves, esc again leaves without", "$warning")
            return
        self.dismiss(None)

    def action_save(self) -> None:
        try:
            settings = self._read()
        except ArenaError:
            self.app.bell()  # the last line says what is wrong
            return
        self.dismiss(settings)


def _value(setting: SettingField, text: str) -> object:
    """Returns the typed text as the field's type if it can be converted; else the text, which the check refuses."""
    text = text.strip()
    if setting.kind is list:
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return msgspec.convert(text, setting.kind, strict=False)
    except msgspec.ValidationError:
        return text


def _sentence(setting: SettingField) -> str:
    """Returns a field's description. A list shows "(automatic)" for an empty value; keys have a dialog of their own."""
    if setting.name == "keymap":
        return "Keys of your own: enter lists all actions; press the key that one of them should have."
    return (
        setting.description.replace("; empty takes", f"; {AUTOMATIC} takes") if setting.choices else setting.description
    )
