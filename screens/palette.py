"""The command palette, called menu: commands of the screen below it, problems by a few letters, themes.

Over a dialog that only shows text, it offers the commands of the screen below; a command closes the dialog first.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from textual import on
from textual.binding import BindingType
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.errors import NoWidget
from textual.events import Click
from textual.screen import Screen
from textual.widgets import OptionList

from problems.specification import Problem
from screens.actions import ACTIONS, PLACES, Action, bindings, key_of
from screens.app_protocol import arena_app, dismiss_in_front
from screens.base import PANE_ACTIONS, BaseScreen
from screens.dialogs import Dialog, on_the_app

_WORDS = re.compile(r"[a-z0-9]+")
_ALL, _WHOLE, _START, _WORD, _INSIDE, _SPREAD = 1.0, 0.95, 0.9, 0.8, 0.6, 0.4
"""Scores for: the whole name, one of its words, its beginning, a word's beginning, part of a word, letters in order."""
_SENTENCE = 0.6
"""Factor on the score of a match in the sentence instead of the name."""
_SPAN = 3.0
"""Maximum length of the part of a name that contains the letters in order, as a multiple of their number."""


def fit(query: str, name: str, sentence: str = "") -> tuple[float, bool]:
    """Returns how well a query fits, from 0 (not at all) to 1, and whether all of its words are in the name.

    Every word of it must be found in the name or the sentence. Words of a sentence count only from their beginning, and
    letters that are spread over a name only from a word's beginning.
    """
    asked = query.lower().split()
    if not asked:
        return 0.0, False
    name, sentence = name.lower(), sentence.lower()
    if (whole := _in_name(" ".join(asked), name)) >= _INSIDE:
        return whole, True
    in_name = [_in_name(word, name) for word in asked]
    found = [max(own, _in_sentence(word, sentence)) for word, own in zip(asked, in_name, strict=True)]
    if not all(found):
        return 0.0, False
    return sum(found) / len(found) * 0.95, all(in_name)  # less than for the same words in one piece


def _in_name(asked: str, name: str) -> float:
    if asked == name:
        return _ALL
    if asked in name.split():
        return _WHOLE
    if name.startswith(asked):
        return _START
    begins = [match.start() for match in _WORDS.finditer(name)]
    if any(name.startswith(asked, at) for at in begins):
        return _WORD
    if asked in name:
        return _INSIDE if len(asked) > 1 else 0.0
    return _SPREAD if len(asked) > 1 and any(_spread(asked, name, at) for at in begins) else 0.0


def _in_sentence(asked: str, sentence: str) -> float:
    begins = [match.start() for match in _WORDS.finditer(sentence)]
    return _SENTENCE * _WORD if any(sentence.startswith(asked, at) for at in begins) else 0.0


def _spread(asked: str, name: str, at: int) -> bool:
    """Whether the letters follow each other from `at` on, not too far apart."""
    end = at - 1
    for letter in asked:
        end = name.find(letter, end + 1)
        if end < 0:
            return False
    return name[at] == asked[0] and end + 1 - at <= _SPAN * len(asked)


_GROUP, _TITLE, _KEY = 9, 16, 11
"""Columns of a command in the menu."""
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


class Palette(CommandPalette):
    """Textual's palette, in which help and quit work as in every dialog."""

    dismiss = dismiss_in_front

    DEFAULT_CSS = """
    Palette > Vertical { margin-top: 2; width: 100%; max-width: 118; }
    Palette #--results, Palette CommandList { max-width: 118; }
    Palette CommandList { text-wrap: nowrap; text-overflow: ellipsis; }
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

    def _on_click(self, event: Click) -> None:  # type: ignore[override]
        event.prevent_default()  # Textual calls the method of every class, also of the base
        with suppress(NoWidget):  # the screen became smaller since
            super()._on_click(event)

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
        group = ""
        for place, action in enumerate(self._actions()):
            own = "places" if action.name in PLACES[1:] else "app" if action.scope == "everywhere" else action.scope
            row = self._row(action, Content(action.title), own if own != group else "")
            group = own
            yield Hit(1.0 - place / len(ACTIONS), row, partial(self._do, action), action.title)
        for title, choose in self._themes():
            yield DiscoveryHit(title, choose)

    async def search(self, query: str) -> Hits:
        matcher, below = self.matcher(query), _screen_below(self.screen)

        def marked(name: str, in_name: bool) -> Content:
            return matcher.highlight(name) if in_name else Content(name)

        for action in self._actions():
            score, in_name = fit(query, action.title, action.help)
            if score > 0:
                row = self._row(action, marked(action.title, in_name))
                yield Hit(score + COMMAND, row, partial(self._do, action), action.title)
        catalogue = arena_app(self.screen).services.catalogue
        # a dialog must be answered before another problem is opened
        for problem in catalogue.problems if catalogue and below is not None else []:
            name = f"{problem.id} {problem.slug}"
            score, in_name = fit(query, name, problem.title)
            if score > 0:
                yield Hit(score, marked(name, in_name), partial(self._open, problem), name, problem.title)
        for title, choose in self._themes():
            if (score := fit(query, title)[0]) > 0:
                yield Hit(score + THEME, matcher.highlight(title), choose, title)

    def _row(self, action: Action, title: Content, group: str = "") -> Content:
        """Returns one line: the group at its first action, the title, its first key, what it does."""
        key = key_of(action.name, arena_app(self.screen).services.settings.keymap).partition(" or ")[0]
        title = title.pad_right(max(1, _TITLE - title.cell_length))
        return Content.assemble(
            (f"{group:<{_GROUP}}", "$muted"), title, (f"{key:<{_KEY}}", "$accent"), (action.help, "$muted")
        )

    def _actions(self) -> list[Action]:
        """Returns the actions of the screen, then the other places, then the actions that work everywhere."""
        below = _screen_below(self.screen)
        general = [a for a in ACTIONS if a.scope == "everywhere" and a.name != "command_palette"]
        if below is None:
            return [action for action in general if action.name not in PANE_ACTIONS]
        own = [a for a in ACTIONS if a.scope == below.SCOPE != "everywhere" and a.name not in PLACES[1:]]
        return own + [a for a in ACTIONS if a.name in PLACES and a not in own] + general

    async def _do(self, action: Action) -> None:
        below = _screen_below(self.screen)
        if below is not None and (action.scope != "everywhere" or action.name in PANE_ACTIONS):
            await _uncover(below)
        if action.name in PLACES:  # the list of problems is below every screen
            await self.app.run_action(action.name, self.app.screen_stack[0])
            return
        namespace = "app" if action.scope == "everywhere" else "screen"
        await self.app.screen.run_action(f"{namespace}.{action.name}")

    async def _open(self, problem: Problem) -> None:
        if (below := _screen_below(self.screen)) is not None:
            await _uncover(below)
            below.parent_app.open_problem(problem)

    def _themes(self) -> Iterator[tuple[str, Callable[[], None]]]:
        app = arena_app(self.screen)
        return ((f"{_THEME}{name}", partial(app.choose_theme, name)) for name in app.theme_names)
