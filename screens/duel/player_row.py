"""One player in the dialog before a duel: name, costs, and why it cannot play."""

import asyncio

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Select

from arena.duel.events import SideName
from arena.errors import ArenaError
from arena.players.make_player import AGENT, MODEL, make_player
from arena.players.player import Player, PlayerSetup
from arena.words.untrusted_text import printable
from screens.widgets.text_lines import PlainStatic

PROGRAM = "agent: a program of yours"
"""Entry for a program in the list of players; its path has its own line."""


class PlayerRow(Vertical):
    """One player, which is checked in a thread as soon as it is chosen."""

    class Known(Message):
        """The check of the player has ended, or its program is not named yet."""

    def __init__(
        self, side: SideName, players: list[str], chosen: str, setup: PlayerSetup, facts: dict[str, str]
    ) -> None:
        """facts: sentences below players, by their word."""
        super().__init__(id=f"row-{side}", classes="player-row")
        self._side: SideName = side
        self._players, self._chosen = players, chosen
        self._setup, self._facts = setup, facts
        self.player: Player | None = None
        """The model or agent program; None: not checked yet, unable to play, or another kind of player."""
        self.known = False
        """Whether the player was checked and can play."""
        self.trouble = ""
        """Why it cannot play."""

    def compose(self) -> ComposeResult:
        with Horizontal(classes="row"):
            yield PlainStatic(self._side, classes="label")
            yield Select(
                ((player, player) for player in self._players),
                value=self._chosen,
                allow_blank=False,
                id=f"player-{self._side}",
                compact=True,
            )
        with Horizontal(classes="row program"):
            yield PlainStatic("", classes="label")
            yield Input(placeholder="./my_agent.py --fast", id=f"program-{self._side}", compact=True)
        yield PlainStatic("", classes="sentence player-facts")

    def on_mount(self) -> None:
        self.query_one(".program").display = False
        self.query_one(".player-facts").display = False

    @property
    def word(self) -> str:
        """The player, as on the command line."""
        chosen = str(self.query_one(Select).value)
        return f"{AGENT}{self.query_one(Input).value.strip()}" if chosen == PROGRAM else chosen

    async def check(self) -> None:
        """Checks whether the player can play; shows its facts, or the error."""
        self.player, self.known, self.trouble = None, False, ""
        try:
            if self.word.startswith((AGENT, MODEL)):
                self.player = await asyncio.to_thread(make_player, self.word, self._setup)
            self.known = True
            self._say(self.player.facts if self.player is not None else self._facts.get(self.word, ""), "$muted")
        except ArenaError as error:
            self.trouble = error.one_line
            self._say(f"✗ {self.trouble}", "$error")
        self.post_message(self.Known())

    def _say(self, words: str, style: str) -> None:
        shown = self.query_one(".player-facts", PlainStatic)
        shown.update(Content.styled(printable(words), style))
        shown.display = bool(words)

    @on(Select.Changed)
    def _chosen_another(self) -> None:
        by_path = self.query_one(Select).value == PROGRAM
        self.query_one(".program").display = by_path
        self.player, self.known, self.trouble = None, False, ""
        self._say("checking…" if self.word.startswith(AGENT) else "", "$muted")
        if by_path and not self.query_one(Input).value:
            self._say("a path, or a command that begins with one; it runs in a jail of its own", "$muted")
            self.query_one(Input).focus()
            self.post_message(self.Known())
        else:
            self._check_soon()

    @on(Input.Blurred)
    def _named(self) -> None:
        if self.query_one(Input).value:
            self._check_soon()

    @work(group="check", exclusive=True, exit_on_error=False)
    async def _check_soon(self) -> None:
        await self.check()
