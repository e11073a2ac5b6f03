"""The command palette, called menu: commands of the screen below it, problems by a few letters, themes.

Over a dialog that only shows text, it offers the commands of the screen below; a command closes the dialog first.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

from textual import on
from textual.binding import BindingType
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.fuzzy import Matcher
from textual.screen import Screen
from textual.widgets import OptionList

from arena.settings import setting_fields
from problems.specification import Problem
from screens.actions import ACTIONS, PLACES, Action, bindings, key_of
from screens.app_protocol import Layer, arena_app, if_there
from screens.base import PANE_ACTIONS, BaseScreen
from screens.dialogs import Dialog, on_the_app

LEAST = 1.8
"""Minimum score a letter. Textual's matcher also finds letters that are far apart."""
SENTENCE = 2.1
"""Score of a word that begins a word of the sentence: more than letters that are far apart, less than first letters of words."""


def fit(query: str, name: str, sentence: str = "") -> float:
    """Returns how well a query fits; 0: not at all. Every word of it must be in the name, or begin a word of the sentence."""
    name = name.replace("_", " ")
    scores = [_near(word, name) or SENTENCE * _begins(word, sentence) for word in query.split()]
    if not scores or not all(scores):
        return 0.0
    return max(_near(query, name), 0.95 * sum(scores) / len(scores))  # less than for the same words in one piece


def _near(asked: str, name: str) -> float:
    score = Matcher(asked).match(name) / len(asked) - len(name) / 1000  # of two that fit as well, the shorter one
    return score if score >= LEAST and (len(asked) > 1 or _begins(asked, name)) else 0.0


def _begins(asked: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(asked)}", text, re.IGNORECASE) is not None


_GROUP, _TITLE, _KEY, _GROUPED = 9, 16, 11, 80
"""Columns of a command in the menu, and those of the app from which it has a group."""
_THEME = "theme: "
"""In front of a theme's name."""
COMMAND, THEME = 0.02, 0.01
"""Added to the scores of commands and themes, so that they precede problems that fit as well."""


def _screen_below(caller: Screen[Any]) -> BaseScreen | None:
    """Returns the screen for the commands: the caller, or the one below dialogs that only show text; else None."""
    stack = caller.app.screen_stack
    for screen in reversed(stack[: stack.index(caller) + 1] if caller in stack else []):
        if isinstance(screen, BaseScreen):
            return screen
        if not (isinstance(screen, Dialog) and screen.TO_READ):
            break
    return None


async def _uncover(screen: BaseScreen) -> None:
    """Closes the dialogs above a screen, as escape does."""
    while screen in screen.app.screen_stack and (dialog := screen.app.screen) is not screen:
        await dialog.dismiss()


CommandPalette._on_click = if_there(CommandPalette._on_click)  # type: ignore[method-assign]


class Palette(CommandPalette, Layer[None]):
    """Textual's palette, in which help and quit work as in every dialog."""

    DEFAULT_CSS = """
    Palette > Vertical { margin-top: 2; width: 100%; max-width: 118; }
    Palette SearchIcon { display: none; }
    Palette #--results, Palette CommandList { max-width: 118; }
    Palette CommandList { text-wrap: nowrap; text-overflow: ellipsis; }
    Palette CommandList > .option-list--option { text-style: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        on_the_app(binding) for binding in bindings("everywhere") if binding.action in ("help", "quit")
    ]

    # A search that ends while the palette closes still reports to parts that are removed already.
    def _watch__list_visible(self) -> None:
        if self.query(CommandList):
            super()._watch__list_visible()

    async def _watch__show_busy(self) -> None:
        if self.query(CommandList):
            await super()._watch__show_busy()

    @on(OptionList.OptionHighlighted)
    def _preview(self, event: OptionList.OptionHighlighted) -> None:
        """Shows the theme under the cursor."""
        hit = getattr(event.option, "hit", None)
        text = (hit.text or "") if hit is not None else ""
        if text.startswith(_THEME):
            self.app.theme = text.removeprefix(_THEME)
        else:
            arena_app(self).show_theme()

    def on_unmount(self) -> None:
        arena_app(self).show_theme()

    def _action_command_list(self, action: str) -> None:
        """Does nothing in a list without room: Textual knows no place of its commands, and fails at page up and down."""
        if self.query_one(CommandList).scrollable_content_region:
            super()._action_command_list(action)


class Commands(Provider):
    """The actions that the screen below the palette has, problems by a few letters of their names, and themes."""

    async def discover(self) -> Hits:
        """Yields all actions, scored in their order. Textual shows a `DiscoveryHit` (score 0) last, in any order."""
        group, width = "", 0 if self.app.size.width < _GROUPED else _GROUP
        for place, action in enumerate(self._actions()):
            own = "places" if action.name in PLACES[1:] else "app" if action.scope == "everywhere" else action.scope
            first = Content.styled(f"{own if own != group else '':<{width}}"[:width], "$muted")
            row, group = first + self._row(action, Content(action.title)), own
            yield Hit(1.0 - place / len(ACTIONS), row, partial(self._do, action), action.title)
        for title, choose in self._themes():
            yield DiscoveryHit(f"{_THEME:<{_GROUP}}{title.removeprefix(_THEME)}", choose, title)

    async def search(self, query: str) -> Hits:
        matcher, below = self.matcher(query), _screen_below(self.screen)

        for action in self._actions():
            if score := fit(query, action.title, action.help):
                row = self._row(action, matcher.highlight(action.title))
                named = action.name == "settings" and query in {each.name for each in setting_fields()}
                yield Hit(score + COMMAND, row, partial(self._do, action, query if named else ""), action.title)
        catalogue = arena_app(self.screen).services.catalogue
        # a dialog must be answered before another problem is opened
        for problem in catalogue.problems if catalogue and below is not None else []:
            name = f"{problem.id} {problem.slug}"
            if score := fit(query, name, problem.title):
                yield Hit(score, matcher.highlight(name), partial(self._open, problem), name, problem.title)
        for title, choose in self._themes():
            if score := fit(query, title):
                yield Hit(score + THEME, matcher.highlight(title), choose, title)

    def _row(self, action: Action, title: Content) -> Content:
        """Returns one line: the title, its first key, what it does."""
        key = key_of(action.name, arena_app(self.screen).services.settings.keymap)
        title = title.pad_right(max(1, _TITLE - title.cell_length)).stylize("bold")
        return Content.assemble(title, (f"{key:<{_KEY}}", "$accent"), (action.help, "$muted"))

    def _actions(self) -> list[Action]:
        """Returns the actions of the screen, then the other places, then the actions that work everywhere."""
        below = _screen_below(self.screen)
        general = [a for a in ACTIONS if a.scope == "everywhere" and a.name != "command_palette"]
        if below is None:
            return [action for action in general if action.name not in PANE_ACTIONS]
        own = [a for a in ACTIONS if a.scope == below.SCOPE != "everywhere" and a.name not in PLACES[1:]]
        return own + [a for a in ACTIONS if a.name in PLACES and a not in own] + general

    async def _do(self, action: Action, search: str = "") -> None:
        below = _screen_below(self.screen)
        if below is not None and (action.scope != "everywhere" or action.name in PANE_ACTIONS):
            await _uncover(below)
        if action.name in PLACES:  # the list of problems is below every screen
            await self.app.run_action(action.name, self.app.screen_stack[0])
            return
        namespace = "app" if action.scope == "everywhere" else "screen"
        await self.app.screen.run_action(f"{namespace}.{action.name}{f'({search!r})' * bool(search)}")

    async def _open(self, problem: Problem) -> None:
        if (below := _screen_below(self.screen)) is not None:
            await _uncover(below)
            below.parent_app.open_problem(problem)

    def _themes(self) -> Iterator[tuple[str, Callable[[], None]]]:
        app = arena_app(self.screen)
        return ((f"{_THEME}{name}", partial(app.choose_theme, name)) for name in app.theme_names)
