"""The base of the full-screen views: keys, panes, and background work that reports its errors."""

import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, ClassVar

from textual.css.query import NoMatches
from textual.geometry import Size
from textual.widget import Widget

from arena.errors import ArenaError, refusal
from screens.actions import Scope, key_of
from screens.app_protocol import AppProtocol, Layer
from screens.pane_jump import NEXT, PaneJump, Stop

PANE_ACTIONS = frozenset({"jump", "zoom"})
"""Actions of the app that concern the panes of the screen."""
AGAIN_WITHIN_S = 1.5
"""Seconds within which a second press confirms the first, where no message asks for it."""
SAID_S, COMPLAINED_S = 4.0, 10.0
"""Seconds for which a message and an error are shown."""
KEYS_BESIDE, KEYS_BESIDE_FROM = 38, 100
"""Columns of the keys beside a screen, and those that a terminal must have to show them."""


class BaseScreen(Layer[None]):
    """A full-screen view."""

    SCOPE: ClassVar[Scope] = "everywhere"
    PLACES: ClassVar[tuple[Stop, ...]] = ()
    """Panes that have a letter and can have the whole screen."""

    def __init__(self, parent_app: AppProtocol) -> None:
        """`parent_app` is the app that opens this screen."""
        super().__init__()
        self.parent_app = parent_app
        self.services = parent_app.services
        self.HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]
        self._idle_shown: frozenset[str] = frozenset()
        self._pressed: dict[str, float] = {}
        """Until when a second press of an action counts."""

    def on_compose(self) -> None:
        """Sets the classes of this size before there are contents; later, all their styles would be computed again."""
        self._fit_classes(self.app.size)

    def _fit_classes(self, size: Size) -> None:
        sides = (size.width, self.HORIZONTAL_BREAKPOINTS or []), (size.height, self.VERTICAL_BREAKPOINTS or [])
        fits = {name for side in sides for name in self._get_breakpoint_classes(*side)}
        self.update_classes({name: name in fits for _, points in sides for _, name in points}, animate=False)
        self.query("#keys-beside").set(display=size.width >= KEYS_BESIDE_FROM)

    def _get_breakpoint_classes(self, dimension: int, breakpoints: list[tuple[int, str]]) -> set[str]:
        """As Textual's, for the columns that the keys beside the screen leave."""
        beside = breakpoints is self.HORIZONTAL_BREAKPOINTS and getattr(self.app, "keys_beside", False)
        room = dimension - KEYS_BESIDE * (beside and dimension >= KEYS_BESIDE_FROM)
        return super()._get_breakpoint_classes(room, breakpoints)

    def _screen_resized(self, size: Size) -> None:
        """Draws again once the panes fit the new size: Textual would first draw a layout of the old classes.

        Before it was ever shown there is none, and a delay would make its first picture late.
        """
        before = self.classes
        self._fit_classes(size)
        if self.stack_updates and self.classes != before:
            self.app.delay_update()
        super()._screen_resized(size)

    def on_screen_resume(self) -> None:
        """Shows the keys beside this screen, or no longer, as on the screen before; after each move of the focus, too."""
        if getattr(self.app, "keys_beside", False) or self.query("#keys-beside"):
            self.parent_app.show_keys_beside(self)

    on_descendant_focus = on_screen_resume

    @property
    def draft_of(self) -> str:
        """The kernel whose unsaved text is kept as a draft when the app ends; empty if there is none."""
        return ""

    @property
    def draft_words(self) -> str:
        """The message about that text."""
        if not self.draft_of:
            return ""
        return f"The unsaved text of {self.draft_of} is kept as a draft: `{self.reopen}` offers it."

    def keep_text(self) -> None:
        """Keeps unsaved text on disk, before the app ends after a fault."""

    @property
    def reopen(self) -> str:
        """The command that opens this screen again."""
        return "pkb-arena"

    def may_quit(self) -> bool:
        """Whether the app may quit now. If not, shows that another press of the key does."""
        return True

    @property
    def idle_actions(self) -> frozenset[str]:
        """Actions that do not work now and only show why; the key line leaves them out."""
        return frozenset() if self.PLACES else PANE_ACTIONS

    def show_keys(self) -> None:
        """Draws the key line again if the idle actions changed."""
        if (idle := self.idle_actions) != self._idle_shown:
            self._idle_shown = idle
            self.refresh_bindings()

    def key_words(self, action: str) -> str:
        """The key of an action, as it is shown."""
        return key_of(action, self.services.settings.keymap)

    def was_pressed(self, action: str) -> bool:
        """Whether an action that needs a second press was pressed, and a second press still counts."""
        return time.monotonic() < self._pressed.get(action, 0.0)

    def note_press(self, action: str, within_s: float = AGAIN_WITHIN_S) -> None:
        """Records the first press of an action that needs a second one. within_s: seconds in which that counts."""
        self._pressed[action] = time.monotonic() + within_s

    def forget_press(self, action: str) -> None:
        """Makes the next press of an action its first one again."""
        self._pressed.pop(action, None)

    def is_sure(self, action: str, consequence: str, key: str = "") -> bool:
        """Whether this is the second press of an action's key. If not, shows what another press does.

        consequence: the words after "esc again". key: what was pressed; empty: the action's key.
        """
        if self.was_pressed(action):
            self.app.clear_notifications()  # that asked for it
            return True
        self.note_press(action, SAID_S)
        self.say(f"{key or self.key_words(action)} again {consequence}")
        return False

    # --- panes -----------------------------------------------------------------------------------------------

    def jump(self) -> None:
        """Shows a letter on every pane and goes to the one that is pressed."""
        stops = self.stops()
        if not stops:
            self.say("This screen has one pane.")
            return

        def chosen(name: str | None) -> None:
            if name == NEXT:
                self.go_to_next()
            elif name:
                self.go_to(name)

        self.app.push_screen(PaneJump(stops, self.key_words("jump")), chosen)

    def stops(self) -> list[Stop]:
        """Returns every pane that is displayed at this size, with the place of its letter."""
        found = []
        for place in self._places():
            region = self.query_one(place.name).region
            at = region.offset if region.area else None  # on the corner, so that the title stays visible
            found.append(replace(place, at=at))
        return found

    def go_to(self, name: str) -> None:
        """Focuses a pane. If a pane has the whole screen, this one takes its place."""
        pane = self.query_one(name)
        takers = (node for node in pane.walk_children(with_self=True) if isinstance(node, Widget))
        if self.maximized is not None:
            self.maximized = pane
        if (target := next((node for node in takers if node.focusable and _displayed(node)), None)) is not None:
            with self.parent_app.keys_wait():
                self.call_after_refresh(target.focus)

    def go_to_next(self) -> None:
        """Focuses the pane after the focused one; after the last pane, the first."""
        places, here = self._places(), self._place_of_focus()
        at = places.index(here) if here in places else -1
        self.go_to(places[(at + 1) % len(places)].name)

    def zoom_focused(self) -> None:
        """Gives the focused pane the whole screen, or gives all panes their places back."""
        if self.maximized is not None:
            self.minimize()
        elif (place := self._place_of_focus()) is not None:
            self.maximized = self.query_one(place.name)
        else:
            self.say("This screen has one pane.")

    def _places(self) -> list[Stop]:
        return [place for place in self.PLACES if _displayed(self.query_one(place.name))]

    def _place_of_focus(self) -> Stop | None:
        nodes = self.focused.ancestors_with_self if self.focused is not None else []
        return next((place for place in self._places() if self.query_one(place.name) in nodes), None)

    # --- work and words --------------------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, None], group: str, *, exclusive: bool = False) -> None:
        """Runs `work` beside the screen. An exclusive group keeps only its newest work."""
        self.run_worker(self._guard(work), group=group, exclusive=exclusive, exit_on_error=False)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ArenaError as error:
            self.complain(error.one_line)
        except Exception as error:
            if isinstance(error, NoMatches) and not (self.app.is_running and self in self.app.screen_stack):
                return  # the screen or the app was left meanwhile, and its widgets are gone
            if refused := refusal(error):
                self.complain(refused.one_line)
                return
            # A bug of ours: show it and keep running, so that no typed text is lost.
            self.parent_app.record_fault(error)
            self.complain(f"internal error: {type(error).__name__}: {error}")

    def complain(self, text: str) -> None:
        """Shows an error that the user should read."""
        self.app.notify(text, severity="error", timeout=COMPLAINED_S, markup=False)

    def say(self, text: str) -> None:
        """Shows a short message."""
        self.app.notify(text, timeout=SAID_S, markup=False)


def _displayed(widget: Widget) -> bool:
    """Whether neither the widget nor any widget around it is hidden."""
    return all(node.display for node in widget.ancestors_with_self if isinstance(node, Widget))
