"""The settings dialog, generated from the schema: each field with its description."""

from typing import Any, ClassVar

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import DescendantFocus
from textual.widgets import Button, Input, OptionList, Select

from arena.errors import ArenaError
from arena.settings import SettingField, Settings, check_settings, setting_fields
from screens.app_protocol import arena_app, ask
from screens.dialogs import Dialog, field, one_of
from screens.dialogs.key_editor import KeyEditor
from screens.widgets.tables import FilterInput
from screens.widgets.text_lines import PlainStatic

AUTOMATIC = "(automatic)"


class SettingsScreen(Dialog[Settings | None]):
    """Checks every change at once. The key that saves a kernel also saves the settings. Editing the file works, too."""

    SEARCHES = True
    AUTO_FOCUS = CONTROLS = ".setting Input, .setting Select, .setting Button"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "save", "save", id="save", priority=True),
        Binding("slash", "filter", "search"),
    ]

    def __init__(self, settings: Settings, themes: list[str], file: str, search: str = "") -> None:
        """search: the words of the settings to show; empty: all."""
        super().__init__()
        self._searched = search
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
        if self._searched:
            box = self.query_one(FilterInput)
            box.value, box.display = self._searched, True
            self._search()
            with arena_app(self).keys_wait():
                self.call_after_refresh(box.action_to_list)
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
