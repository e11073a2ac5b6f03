"""The screen of a demo: one thing at a time, in large type. Any key ends the demo."""

from pathlib import Path
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import ContentSwitcher

from arena.demo import Performance
from arena.duel.events import SIDES, SideName
from screens.app_protocol import AppProtocol
from screens.base import BaseScreen
from screens.demo import words
from screens.demo.big_type import BigType
from screens.duel.words import COLOURS
from screens.widgets.text_lines import PlainStatic

REFRESH_S = 0.1
BOARD_ROWS = 5


class DemoScreen(BaseScreen):
    """Shows the stage of a performance; decides nothing."""

    CSS_PATH: ClassVar[Any] = [Path(__file__).with_name("demo.tcss")]

    class TakenOver(Message):
        """The user pressed a key, or clicked."""

    def __init__(self, parent_app: AppProtocol, performance: Performance) -> None:
        super().__init__(parent_app)
        self.performance = performance
        self.VERTICAL_BREAKPOINTS = [(0, "-low"), (30, "-high")]

    def compose(self) -> ComposeResult:
        yield PlainStatic(id="stage-head")
        with ContentSwitcher(initial="opening", id="slides"):
            with Vertical(id="opening"):
                yield BigType("center", id="opening-words")
            with Vertical(id="problem"):
                yield BigType(id="problem-name")
                yield BigType(id="problem-sentence")
                yield BigType("center", id="problem-players")
            with Vertical(id="race"):
                yield BigType(id="race-name")
                for name in SIDES:
                    yield from self._lane(name)
                yield BigType("center", id="race-line")
            with Vertical(id="verdict"):
                yield BigType(id="verdict-name")
                yield BigType("center", id="winner")
                yield BigType("center", id="margin")
                yield BigType("center", id="over")
                yield PlainStatic(id="small-print")
            with Vertical(id="board"):
                yield BigType(id="board-name")
                for number in range(BOARD_ROWS):
                    yield BigType(id=f"place-{number}", classes="place")
            with Vertical(id="trouble"):
                yield BigType("center", id="trouble-name")
                yield PlainStatic(id="trouble-words")

    def _lane(self, name: SideName) -> ComposeResult:
        with Vertical(classes="lane"):
            with Horizontal(classes="lane-head"):
                yield BigType(id=f"{name}-name")
                yield BigType("right", id=f"{name}-figure")
            yield PlainStatic(id=f"{name}-track", classes="track")
            yield PlainStatic(id=f"{name}-status", classes="status")

    def on_mount(self) -> None:
        self.set_interval(REFRESH_S, self.draw)
        self.draw()

    # --- drawing -----------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Draws the stage, ten times a second; widgets redraw only if something changed."""
        if not self.is_attached:
            return
        stage = self.performance.stage
        switcher = self.query_one("#slides", ContentSwitcher)
        if switcher.current != stage.slide:
            switcher.current = stage.slide
        scenes = len(self.performance.script.scene)
        head = self.query_one("#stage-head", PlainStatic)
        head.update_if_new(words.head(stage, scenes, head.size.width))
        getattr(self, f"_draw_{stage.slide}")()

    def _big(self, id: str, text: str, style: str = "$foreground") -> None:
        self.query_one(f"#{id}", BigType).show(text, style)

    def _draw_opening(self) -> None:
        self._big("opening-words", "PKB ARENA", "$accent")

    def _draw_problem(self) -> None:
        stage = self.performance.stage
        self._big("problem-name", _spoken(stage.problem), "$accent")
        self._big("problem-sentence", stage.sentence)
        if stage.state is not None:
            left, right = (words.player(stage.state, name) for name in SIDES)
            self._big("problem-players", f"{left} – {right}", "$warning")

    def _draw_race(self) -> None:
        stage, state = self.performance.stage, self.performance.stage.state
        assert state is not None
        self._big("race-name", _spoken(stage.problem), "$muted")
        for name in SIDES:
            self._big(f"{name}-name", words.player(state, name), COLOURS[name])
            self._big(f"{name}-figure", *words.figure(words.shown_attempt(state, name)))
            track = self.query_one(f"#{name}-track", PlainStatic)
            size = track.content_size
            if size.width > 1:
                track.update_if_new(words.track(state, name, size.width, size.height))
            self.query_one(f"#{name}-status", PlainStatic).update_if_new(words.status(state, name))
        self._big("race-line", *words.race_line(stage, state))

    def _draw_verdict(self) -> None:
        stage, state = self.performance.stage, self.performance.stage.state
        assert state is not None
        self._big("verdict-name", _spoken(stage.problem), "$muted")
        self._big("winner", *words.winner(state))
        figure, colour, over = words.margin(state)
        self._big("margin", figure, colour)
        self._big("over", over)
        self.query_one("#small-print", PlainStatic).update_if_new(words.small_print(state))

    def _draw_board(self) -> None:
        self._big("board-name", "BOARD", "$accent")
        rows = words.board_rows(self.performance.stage.ratings, BOARD_ROWS)
        for number in range(BOARD_ROWS):
            text = rows[number] if number < len(rows) else ""
            self._big(f"place-{number}", text or ("NO DUEL YET" if number == 0 else ""))

    def _draw_trouble(self) -> None:
        self._big("trouble-name", "ONE MOMENT", "$warning")
        text = Content.styled(self.performance.stage.trouble, "$muted")
        self.query_one("#trouble-words", PlainStatic).update_if_new(text)

    # --- keys --------------------------------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        """Lets the user take over with any key, except the key that quits."""
        active = self.active_bindings.get(event.key)
        if active is not None and active.binding.action == "quit":
            return
        event.stop()
        event.prevent_default()
        self.post_message(self.TakenOver())

    def on_click(self) -> None:
        self.post_message(self.TakenOver())


def _spoken(problem: str) -> str:
    """ "13 GEMM ALLREDUCE" for "13 gemm_allreduce"."""
    return problem.replace("_", " ").upper()
