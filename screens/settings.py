"""The settings, generated from their schema: each field with its sentence."""

from typing import Any, ClassVar

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Select

from arena.errors import ArenaError
from arena.settings import SettingField, Settings, check_settings, setting_fields
from screens.base import Dialog
from screens.complaints import explain
from screens.widgets.foreign import PlainStatic


class SettingsScreen(Dialog[Settings | None]):
    """Checks every change at once; ctrl+s saves. The file itself may be edited as well."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "back"),
        Binding("ctrl+s", "save", "save", priority=True),
    ]

    def __init__(self, settings: Settings, themes: list[str], file: str) -> None:
        super().__init__()
        self._settings, self._themes, self._file = settings, themes, file

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog large") as dialog:
            dialog.border_title = "Settings"
            dialog.border_subtitle = "ctrl+s saves · esc back"
            with VerticalScroll(can_focus=False):
                for field in setting_fields():
                    with Vertical(classes="setting"):
                        with Horizontal(classes="row"):
                            yield PlainStatic(field.name, classes="label")
                            yield self._control(field)
                        yield PlainStatic(field.description, classes="sentence")
            yield PlainStatic("", id="report")

    def on_mount(self) -> None:
        self._report()

    def _control(self, field: SettingField) -> Input | Select[str] | Select[bool]:
        value = getattr(self._settings, field.name)
        name = f"set-{field.name}"
        if field.kind is bool:
            return Select(
                (("no", False), ("yes", True)), value=value, allow_blank=False, id=name, compact=True
            )
        choices = tuple(self._themes) if field.name == "theme" else field.choices
        if choices:
            options = [(choice or "(automatic)", choice) for choice in choices]
            return Select(
                options,
                value=value if value in choices else choices[0],
                allow_blank=False,
                id=name,
                compact=True,
            )
        return Input(_text(value), id=name, compact=True)

    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for field in setting_fields():
            control = self.query_one(f"#set-{field.name}")
            match control:
                case Select():
                    values[field.name] = control.value
                case Input():
                    values[field.name] = _value(field, control.value)
        return values

    def _read(self) -> Settings:
        checked = check_settings(self._values(), "here")
        shown = {field.name: getattr(checked, field.name) for field in setting_fields()}
        return msgspec.structs.replace(self._settings, **shown)  # what is not shown here stays as it is

    @on(Input.Changed)
    @on(Select.Changed)
    def _report(self) -> None:
        report = self.query_one("#report", PlainStatic)
        try:
            self._read()
        except (ArenaError, ValueError) as error:
            text = explain(error) if isinstance(error, ArenaError) else str(error)
            report.update(Content.styled(f"✗ {text}", "$error"))
        else:
            report.update(Content.styled(f"file: {self._file}", "$muted"))

    def action_save(self) -> None:
        try:
            settings = self._read()
        except (ArenaError, ValueError):
            self.app.bell()  # the last line says what is wrong
            return
        self.dismiss(settings)


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, dict):
        return ", ".join(f"{key} = {item}" for key, item in value.items())
    return str(value)


def _value(field: SettingField, text: str) -> object:
    """What was typed as the field's own kind. Raises ValueError with a sentence."""
    text = text.strip()
    if field.kind is list:
        return [part.strip() for part in text.split(",") if part.strip()]
    if field.kind is dict:
        pairs = [part.partition("=") for part in text.split(",") if part.strip()]
        if any(not sign for _, sign, _ in pairs):
            raise ValueError(f"{field.name}: write it as name = key, name = key")
        return {key.strip(): item.strip() for key, _, item in pairs}
    try:
        return msgspec.convert(text, field.kind, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"{field.name}: {error}") from None
