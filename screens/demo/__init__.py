"""The screen of a demo: one thing at a time, in large type. Any key ends the demo."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.content import Content

from arena.demo import DemoScript, DemoStage, OpenJudge, Performance
from arena.duel.events import SIDES
from arena.runs.engine import temporary_engine
from screens.app_protocol import AppProtocol
from screens.base import BaseScreen
from screens.demo import words
from screens.demo.big_type import big_type
from screens.duel.words import COLOURS
from screens.widgets.text_lines import PlainStatic

REFRESH_S = 0.1
BOARD_ROWS = 5
HIGH = 30
"""Rows of the terminal from which every line of a slide has room for big type."""


class Part(NamedTuple):
    """A line of a slide: big type, or small text as `Content`."""

    text: str | Content
    colour: str = "$foreground"
    share: float = 0.0
    """Its share of the slide's rows; 0: what the others leave."""
    rows: int = 0
    """Its rows, if they are fixed."""
    centred: bool = False
    beside: tuple[str, str] = ("", "")
    """Big type at the right end, and its colour."""


def parts_of(stage: DemoStage, width: int) -> list[Part]:
    """Returns the lines of the slide that is shown."""
    state, name = stage.state, stage.problem.replace("_", " ").upper()
    match stage.slide:
        case "opening":
            return [Part("PKB ARENA", "$accent", centred=True)]
        case "problem":
            players = " – ".join(words.player(state, side) for side in SIDES) if state is not None else ""
            last = Part(players, "$warning", share=0.18, centred=True)
            return [Part(name, "$accent", share=0.22), Part(stage.sentence), last]
        case "race":
            assert state is not None
            lines = [Part(name, "$muted", share=0.14)]
            for side in SIDES:
                beside = words.figure(words.shown_attempt(state, side))
                lines += [
                    Part(words.player(state, side), COLOURS[side], beside=beside),
                    Part(words.track(state, side, width), rows=2),
                    Part(words.status(state, side), rows=2),
                ]
            return [*lines, Part(*words.race_line(stage, state), share=0.16, centred=True)]
        case "verdict":
            assert state is not None
            figure, colour, over = words.margin(state)
            return [
                Part(name, "$muted", share=0.14),
                Part(*words.winner(state), centred=True),
                Part(figure, colour, centred=True),
                Part(over, share=0.16, centred=True),
                Part(words.small_print(state), rows=3 if width < 80 else 2, centred=True),
            ]
        case "board":
            best = stage.ratings[:BOARD_ROWS]
            names = [words.capitals(each.player, [other.player for other in best])[:14] for each in best]
            rows = [
                f"{at} {name} {each.rating:.0f}" for at, (name, each) in enumerate(zip(names, best, strict=True), 1)
            ]
            places = [Part(row) for row in [*(rows or ["NO DUEL YET"]), *[""] * BOARD_ROWS][:BOARD_ROWS]]
            return [Part("BOARD", "$accent", share=0.14), *places]
    trouble = Part(Content.styled(stage.trouble, "$muted"), rows=3, centred=True)
    return [Part("ONE MOMENT", "$warning", centred=True), trouble]


def rows_of(parts: list[Part], width: int, height: int, high: bool) -> list[Content]:
    """Draws a slide. high: every line of big type has at least the rows of its smallest form."""
    least = 4 if high else 1
    heights = [part.rows or (max(least, round(part.share * height)) if part.share else 0) for part in parts]
    others = max(least, (height - sum(heights)) // max(1, heights.count(0)))
    drawn = [row for part, rows in zip(parts, heights, strict=True) for row in _drawn(part, width, rows or others)]
    return drawn[:height]


def _drawn(part: Part, width: int, rows: int) -> list[Content]:
    """Returns the rows of one line, in the middle of its `rows`."""
    if isinstance(part.text, Content):
        lines = [row for line in part.text.split("\n", allow_blank=True) for row in line.wrap(width)][:rows]
        indents = [(width - line.cell_length) // 2 if part.centred else 0 for line in lines]
        shown = [Content(" " * indent) + line for indent, line in zip(indents, lines, strict=True)]
        return shown + [Content("")] * (rows - len(lines))
    beside, colour = part.beside
    room = width // 2 if beside else width
    left, right = (_middle(big_type(text, room, rows), rows) for text in (part.text, beside))
    indent = " " * ((width - len(left[0])) // 2 if part.centred else 0)
    return [
        Content.assemble(
            (indent + one + " " * (width - len(one) - len(other)) * bool(beside), part.colour), (other, colour)
        )
        for one, other in zip(left, right, strict=True)
    ]


def _middle(lines: list[str], rows: int) -> list[str]:
    """Returns `rows` lines of equal length, with these in the middle."""
    longest = max(map(len, lines), default=0)
    above = (rows - len(lines)) // 2
    return [line.ljust(longest) for line in [*[""] * above, *lines, *[""] * (rows - above - len(lines))]]


class DemoScreen(BaseScreen):
    """Plays a demo and shows its stage."""

    CSS_PATH: ClassVar[Any] = [Path(__file__).with_name("demo.tcss")]

    def __init__(
        self,
        parent_app: AppProtocol,
        script: DemoScript,
        then: Callable[[], object] | None = None,
        *,
        loop: bool = False,
        judge: OpenJudge = temporary_engine,
    ) -> None:
        """then: what follows the last scene; None: the screen before. loop, judge: as in `Performance`."""
        super().__init__(parent_app)
        self._then = then or self.dismiss
        its = self.services
        assert its.catalogue is not None
        self.performance = Performance(script, its.catalogue, its.settings, its.paths, loop=loop, judge=judge)
        self._playing: asyncio.Task[None] | None = None

    def compose(self) -> ComposeResult:
        yield PlainStatic(id="stage-head")
        yield PlainStatic(id="slide")

    def on_mount(self) -> None:
        self.set_interval(REFRESH_S, self.draw)
        self._playing = asyncio.create_task(self._guard(self._play()))

    async def _play(self) -> None:
        try:
            await self.performance.play()
        except Exception:
            self.dismiss()
            raise
        self._then()

    async def on_unmount(self) -> None:
        """Ends the current scene and all its processes."""
        if self._playing is not None:
            self._playing.cancel()
            await asyncio.wait({self._playing})

    def draw(self) -> None:
        """Draws the stage, ten times a second; widgets redraw only if something changed."""
        if not self.is_attached:
            return
        stage, scenes = self.performance.stage, len(self.performance.script.scene)
        head, slide = self.query_one("#stage-head", PlainStatic), self.query_one("#slide", PlainStatic)
        head.update_if_new(words.head(stage, scenes, head.size.width))
        width, height = slide.content_size
        if width > 1 and height:
            drawn = rows_of(parts_of(stage, width), width, height, high=self.size.height >= HIGH)
            slide.update_if_new(Content("\n").join(drawn))

    # --- keys --------------------------------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        """Lets the user take over with any key, except the key that quits."""
        active = self.active_bindings.get(event.key)
        if active is not None and active.binding.action == "quit":
            return
        event.stop()
        event.prevent_default()
        self.dismiss()

    def on_click(self) -> None:
        self.dismiss()
