"""The part of the app that works on every screen: keys, menu, help, settings and themes."""

from __future__ import annotations

import os
import sys
from typing import Any, ClassVar

from msgspec.structs import replace
from textual.binding import Binding, BindingType
from textual.screen import Screen

from arena.settings import Settings
from screens.actions import Scope, bindings, key_of, short_key_words
from screens.base import BaseScreen, show_keys_beside
from screens.keymap import as_sent
from screens.services import Services
from screens.terminal_app import TerminalApp
from screens.themes import DEFAULT, FOLDER, VARIABLE_DEFAULTS, load_themes, sixteen_colours


def _palette() -> Any:
    """Returns the module of the command palette, which is imported when the palette is opened."""
    from screens import palette

    return palette


class KeyedApp(TerminalApp):
    """A terminal app with the keys, the settings and the themes of pkb-arena."""

    COMMANDS: ClassVar[Any] = {
        lambda: _palette().ActionCommands,
        lambda: _palette().ProblemCommands,
        lambda: _palette().ThemeCommands,
    }
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("everywhere")]

    keys_beside = False
    """Whether a panel beside the screen lists the keys."""
    _theme_read = ""
    """The theme that the stylesheet was read for; empty before the first."""

    def __init__(self, services: Services) -> None:
        super().__init__()
        self.services = services
        themes, self.theme_errors = load_themes((FOLDER, services.paths.config / "themes"))
        for theme in themes:
            self.register_theme(theme)
        self.theme_names = [theme.name for theme in themes]
        self.theme = services.settings.theme if services.settings.theme in self.available_themes else DEFAULT
        self._theme_read = self.theme
        self.stylesheet.set_variables(self.get_css_variables())
        self.set_keymap(as_sent(services.settings.keymap))

    def refresh_css(self, animate: bool = True) -> None:
        """Reads the stylesheet again for another theme. Textual would do so for the first one, too, in 20 ms."""
        if self.theme != self._theme_read:
            self._theme_read = self.theme
            super().refresh_css(animate)

    def get_css_variables(self) -> dict[str, str]:
        """Returns none before the user's theme is known: Textual first asks for those of its default theme."""
        variables = super().get_css_variables() if self._theme_read else {}
        drawn = sys.__stdout__ is not None and sys.__stdout__.isatty()  # a picture or a page has all colours
        if drawn and self.console.color_system == "standard" and not self.current_theme.ansi:
            # changed in place: `theme_variables` is the same dict
            variables.update(sixteen_colours(dark=self.current_theme.dark))
        return variables

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLE_DEFAULTS

    # --- settings and themes -------------------------------------------------------------------------------

    def save_settings(self, settings: Settings, before: Settings | None = None) -> None:
        """Applies settings and writes those that changed into the file; shows an error of that.

        before: the settings before the change; None: the current ones.
        """
        from arena.errors import ArenaError
        from arena.settings import load_settings, save_settings

        services, old = self.services, before or self.services.settings
        changed = {
            name: new for name in settings.__struct_fields__ if (new := getattr(settings, name)) != getattr(old, name)
        }
        services.settings = settings
        services.first_start = False
        try:
            services.settings = replace(load_settings(services.paths), **changed)  # others may have edited the file
            save_settings(services.settings, services.paths)
        except ArenaError as error:
            self.notify(error.one_line, severity="error", timeout=10, markup=False)
        self.show_theme()
        self.set_keymap(as_sent(services.settings.keymap))

    def show_theme(self) -> None:
        """Shows the theme of the settings, after another one was only looked at."""
        if self.services.settings.theme in self.available_themes:
            self.theme = self.services.settings.theme

    def choose_theme(self, name: str) -> None:
        """Shows a theme, and keeps it in the settings."""
        self.save_settings(replace(self.services.settings, theme=name))

    def action_next_theme(self) -> None:
        names = self.theme_names
        at = names.index(self.theme) if self.theme in names else -1
        self.choose_theme(names[(at + 1) % len(names)])
        self.notify(f"theme: {self.theme}", timeout=2, markup=False)

    # --- keys ----------------------------------------------------------------------------------------------

    def action_command_palette(self) -> None:
        self._push_once(_palette().Palette)  # without an id: the one before may not be removed yet

    def action_help(self) -> None:
        """Opens the help. In the help: shows the keys beside the screen from now on, or no longer."""
        from screens.dialogs.help import HelpScreen, help_pages, keys_in_focus

        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss()
            self.keys_beside = not self.keys_beside
            self.call_after_refresh(lambda: show_keys_beside(self.screen, shown=self.keys_beside))
            return
        lines = self.screen._compositor.render_strips()
        shown = "\n".join("".join(segment.text for segment in line) for line in lines)
        focus = keys_in_focus(self.screen)
        self._push_once(HelpScreen, help_pages(self.services.settings.keymap, self._scope, focus, shown))

    async def action_quit(self) -> None:
        """Quits if every screen allows it, and names unsaved drafts in the terminal, where they can still be read."""
        screens = [screen for screen in self.screen_stack if isinstance(screen, BaseScreen)]
        if not all(screen.may_quit() for screen in screens):
            return
        kept = [screen.draft_words for screen in screens]
        self.exit(message="\n".join(filter(None, kept)) or None)

    def action_suspend(self) -> None:
        """Stops the process, as ctrl+z does in a shell. In the editor ctrl+z takes back the last change instead."""
        alone = os.getpgid(0) == os.getsid(0)  # without a shell that could continue the process
        if alone or self._driver is None or not self._driver.can_suspend:
            self.notify("Not suspended: no shell could continue the app.", timeout=4, markup=False)
        else:
            self.action_suspend_process()

    def action_help_quit(self) -> None:
        """Shows the key that quits, after ctrl+c without a selection."""
        self.notify(f"{key_of('quit', self.services.settings.keymap)} quits.", timeout=4, markup=False)

    def _push_once(self, dialog: type[Screen[Any]], *arguments: Any, answered: Any = None) -> None:
        """Opens a dialog unless it is open already: the keys that open one work in dialogs, too."""
        if not any(isinstance(screen, dialog) for screen in self.screen_stack):
            self.push_screen(dialog(*arguments), answered)

    @property
    def _scope(self) -> Scope:
        """The scope of the active keys: that of the topmost screen that is no dialog."""
        scopes = [screen.SCOPE for screen in self.screen_stack if isinstance(screen, BaseScreen)]
        return scopes[-1] if scopes else "everywhere"

    def action_jump(self) -> None:
        if (jump := getattr(self.screen, "jump", None)) is not None:  # a screen with panes, or a dialog with fields
            jump()

    def action_zoom(self) -> None:
        if isinstance(self.screen, BaseScreen):
            self.screen.zoom_focused()

    def action_settings(self) -> None:
        from screens.dialogs.settings import SettingsScreen

        before = self.services.settings

        def answered(settings: Settings | None) -> None:
            if settings is not None:
                self.save_settings(settings, before)

        file = str(self.services.paths.settings_file)
        self._push_once(SettingsScreen, before, self.theme_names, file, answered=answered)

    def action_doctor(self) -> None:
        from screens.dialogs.doctor import DoctorScreen

        self._push_once(DoctorScreen)

    def get_key_display(self, binding: Binding) -> str:
        """Returns the key in the spelling of all screens."""
        return binding.key_display or short_key_words(binding.key)
