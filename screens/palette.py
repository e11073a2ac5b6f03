"""The command palette: what can be done on the screen below it, problems by a few letters, themes."""

from collections.abc import Callable, Iterator
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from screens.actions import ACTIONS, Action, key_of
from screens.app_protocol import AppProtocol


class ActionCommands(Provider):
    """The palette's view of the table: what can be done on the screen below it."""

    async def discover(self) -> Hits:
        """All of them, in the order of the table. Textual sorts by score and shows its `DiscoveryHit` (0) last, in any order."""
        for place, action in enumerate(self._actions()):
            title = self._with_key(action, Content(action.title))
            yield Hit(1.0 - place / len(ACTIONS), title, partial(self._do, action), action.title, action.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in self._actions():
            score = max(matcher.match(action.title), matcher.match(action.help) * 0.9)
            if score > 0:
                title = self._with_key(action, matcher.highlight(action.title))
                yield Hit(score, title, partial(self._do, action), action.title, action.help)

    def _with_key(self, action: Action, title: Content) -> Content:
        """The title with the key that does it now."""
        app = self.app
        assert isinstance(app, AppProtocol)
        key = key_of(action.name, app.services.settings.keymap)
        return Content.assemble(title, (f"  {key}", "$accent"))

    def _actions(self) -> list[Action]:
        """Those of the screen first, then those that are in force everywhere."""
        scope = getattr(self.screen, "SCOPE", "everywhere")
        own = [action for action in ACTIONS if action.scope == scope != "everywhere"]
        return own + [action for action in ACTIONS if action.scope == "everywhere"]

    async def _do(self, action: Action) -> None:
        namespace = "app" if action.scope == "everywhere" else "screen"
        await self.screen.run_action(f"{namespace}.{action.name}")


class ProblemCommands(Provider):
    """Opens a problem by a few letters of its name."""

    async def discover(self) -> Hits:
        return
        yield  # an async generator that offers nothing before something is typed

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        app = self.app
        assert isinstance(app, AppProtocol)
        catalogue = app.services.catalogue
        if self.screen.is_modal:
            return  # a dialog is answered before another problem is opened
        for problem in catalogue.problems if catalogue else []:
            name = f"{problem.id} {problem.slug}"
            score = matcher.match(f"{name} {problem.title}")
            if score > 0:
                yield Hit(score, f"{name}", partial(app.open_problem, problem), help=problem.title)


class ThemeCommands(Provider):
    """The themes by name, below everything that can be done."""

    async def discover(self) -> Hits:
        for name, choose in self._themes():
            yield DiscoveryHit(f"theme: {name}", choose)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, choose in self._themes():
            title = f"theme: {name}"
            if (score := matcher.match(title)) > 0:
                yield Hit(score, matcher.highlight(title), choose, title)

    def _themes(self) -> Iterator[tuple[str, Callable[[], None]]]:
        app = self.app
        assert isinstance(app, AppProtocol)
        for name in app.theme_names:
            yield name, partial(app.choose_theme, name)
