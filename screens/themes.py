"""Themes from TOML files, checked before Textual reads them: an invalid colour would end the whole app."""

import tomllib
from collections.abc import Iterable
from pathlib import Path

from textual.color import Color, ColorParseError
from textual.theme import Theme

from arena.errors import ArenaError

FOLDER = Path(__file__).parent.parent / "themes"
DEFAULT = "dark"

VARIABLE_DEFAULTS = {
    "muted": "#808894",
    "rule": "#404854",
    "band": "#30405c",
    "code-keyword": "#c792ea",
    "code-name": "#82b1ff",
    "code-builtin": "#80cbc4",
    "code-string": "#a5c98b",
    "code-number": "#f2a97e",
    "code-comment": "#808894",
    "code-decorator": "#dcb267",
    "outdated": "65%",
}
"""Variables that our stylesheets use beyond Textual's own, with defaults for themes that do not set them."""

_SIXTEEN = {
    "accent": ("#55ffff", "#0000aa"),
    "success": ("#55ff55", "#0000aa"),
    "warning": ("#ffff55", "#aa00aa"),
    "error": ("#ff5555", "#aa0000"),
    "muted": ("#aaaaaa", "#555555"),
    "panel": ("#555555", "#aaaaaa"),
    "rule": ("#555555", "#aaaaaa"),
    "band": ("#555555", "#aaaaaa"),
    "code-keyword": ("#ff55ff", "#aa00aa"),
    "code-name": ("#55ffff", "#0000aa"),
    "code-builtin": ("#00aaaa", "#0000aa"),
    "code-string": ("#55ff55", "#aa0000"),
    "code-number": ("#ffff55", "#aa0000"),
    "code-comment": ("#aaaaaa", "#555555"),
    "code-decorator": ("#ffff55", "#aa00aa"),
    "block-cursor-background": ("#0000aa", "#ffff55"),
    "block-cursor-foreground": ("#ffffff", "#000000"),
    "input-selection-background": ("#00aaaa", "#00aaaa"),
    "outdated": ("100%", "100%"),  # the shades between 16 colours cannot be read
}


def sixteen_colours(*, dark: bool) -> dict[str, str]:
    """What replaces a theme's colours if the terminal has 16: the nearest of these to most pale shades is a grey."""
    return {name: colours[not dark] for name, colours in _SIXTEEN.items()}


_COLOURS = (
    "primary", "secondary", "warning", "error", "success", "accent", "foreground", "background",
    "surface", "panel", "boost",
)  # fmt: skip
_TEXT_STYLES = {"none", "bold", "dim", "italic", "reverse", "underline", "strike"}


def load_theme(path: Path) -> Theme:
    """Reads one theme file.

    Raises:
        ArenaError: not TOML, an unknown key, or a value that is no colour; names the file and the key.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ArenaError(f"{path}: {error}") from None
    values.setdefault("name", path.stem)
    for key in _COLOURS:
        if key in values:
            _check_colour(path, key, values[key])
    variables = values.get("variables", {})
    if not isinstance(variables, dict):
        raise ArenaError(f"{path}: variables must be a table of name = colour")
    for key, value in variables.items():
        if not (isinstance(value, str) and set(value.split()) <= _TEXT_STYLES):
            _check_colour(path, key, value)
    try:
        return Theme(**values)
    except TypeError as error:
        raise ArenaError(f"{path}: {str(error).removeprefix('Theme.__init__() ')}") from None


def _check_colour(path: Path, key: str, value: object) -> None:
    try:
        Color.parse(str(value))
    except ColorParseError:
        raise ArenaError(f'{path}: {key} = "{value}" is not a colour; write it like "#7aa9e0"') from None


def load_themes(folders: Iterable[Path] = (FOLDER,)) -> tuple[list[Theme], list[ArenaError]]:
    """Returns all usable themes of some folders, and the errors of the others."""
    themes: list[Theme] = []
    errors: list[ArenaError] = []
    for folder in folders:
        for path in sorted(folder.glob("*.toml")):
            try:
                themes.append(load_theme(path))
            except ArenaError as error:
                errors.append(error)
    return themes, errors
