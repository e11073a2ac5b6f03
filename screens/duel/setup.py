"""The dialog before a duel: its players, minutes and dollars."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Button, Input, Select

from arena.duel.events import SideName
from arena.errors import ArenaError
from arena.machine.facts import choose_device
from arena.models.budget import has_prices
from arena.players.make_player import AGENT, FILE, MODEL, make_player
from arena.players.player import Player, PlayerSetup
from arena.players.program.jailed import known_programs
from arena.setting_choice import Choice
from arena.settings import ModelSettings
from arena.words.untrusted_text import printable
from arena.workspace.kernel_folder import listed_name
from problems.specification import Problem
from screens.app_protocol import DuelPlan
from screens.dialogs import DecidingDialog, Dialog, field, number, one_of
from screens.duel.live import GUEST, YOU, DuelStart, make_players, opponents
from screens.services import Services
from screens.widgets.text_lines import PlainStatic

RIVAL = "file"
"""Begins the words of the user's kernels as opponents, which play by themselves."""
MINUTES, DOLLARS = "10", "1"
_SENTENCES = (
    "Both play at the same time. Every save is judged; in the end the best kernels of both players run against "
    "each other on fresh inputs. A guest plays from a file of their own, beside yours in the workspace."
)
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
        yield field(self._side, one_of(f"player-{self._side}", self._players, self._chosen))
        program = Input(placeholder="./my_agent.py --fast", id=f"program-{self._side}", compact=True)
        yield field("", program, "program")
        yield PlainStatic("", classes="sentence player-facts")

    @property
    def word(self) -> str:
        """The player, as on the command line."""
        chosen = str(self.query_one(Select).value)
        return f"{AGENT}{self.query_one(Input).value.strip()}" if chosen == PROGRAM else chosen

    @property
    def model(self) -> ModelSettings | None:
        """The model that costs dollars; None: there is none, or it is not checked yet."""
        model = self.player.model if self.player is not None else None
        return None if model is None or model.is_free else model

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
            self.run_worker(self.check(), group="check", exclusive=True, exit_on_error=False)

    @on(Input.Blurred)
    def _named(self) -> None:
        if self.query_one(Input).value:
            self.run_worker(self.check(), group="check", exclusive=True, exit_on_error=False)


class DuelSetup(DecidingDialog[DuelStart | None]):
    """Dismisses with the plan, its setting and its players, once all of them can play."""

    CSS_PATH: ClassVar[Any] = [*Dialog.CSS_PATH, Path(__file__).with_name("setup.tcss")]

    def __init__(
        self,
        services: Services,
        problem: Problem,
        choice: Choice | None,
        programs: list[str],
        device: str,
        kernel: Path | None = None,
    ) -> None:
        """choice: options of the setting; programs: names of agent programs; device: where the ranks run.

        kernel: as in `DuelPlan`.
        """
        super().__init__()
        self.services, self.problem, self.choice = services, problem, choice
        assert services.catalogue is not None
        setup = PlayerSetup(services.settings, services.catalogue, services.paths)
        players = [*opponents(problem, list(setup.settings.models), programs, device), PROGRAM]
        own = kernel or services.workspace.last_open(problem)
        variants = services.workspace.variants(own)
        self._kernels = {f"{YOU}: {listed_name(path)}" if len(variants) > 1 else YOU: path for path in variants}
        """The user's kernels, by the word of the local player."""
        rivals = [word.replace(YOU, RIVAL, 1) for word in self._kernels] if len(self._kernels) > 1 else []
        facts = {GUEST: f"saves in {services.workspace.kernel_path(problem, GUEST)} are submitted"}
        mine = next(word for word, path in self._kernels.items() if path == own)
        self._rows = (
            PlayerRow("left", [*self._kernels, *players], mine, setup, facts),
            PlayerRow("right", [*players, *rivals], players[0], setup, facts),
        )
        self._could_limit: bool | None = None
        """Whether dollars could be limited when the limit's row was last drawn; None: no player costs money."""

    def compose(self) -> ComposeResult:
        preset = self.choice.preset if self.choice is not None else ""
        title = " · ".join(filter(None, (f"Duel · {self.problem.id} {self.problem.slug}", preset)))
        with self.frame(title, "enter starts · space opens a list · esc back"):
            yield from self._rows
            yield field("minutes", Input(MINUTES, id="minutes", compact=True))
            dollars = Input(id="dollars", disabled=True, placeholder="no player costs money", compact=True)
            yield field("dollars", dollars)
            yield PlainStatic("", id="limit-facts", classes="sentence")
            yield PlainStatic("", id="report")
            yield PlainStatic(_SENTENCES, classes="note")
            yield Horizontal(Button("start", variant="primary", id="start", compact=True), classes="buttons")

    def on_mount(self) -> None:
        self.query_one("#player-right").focus()
        self._show_limit()

    # --- money -------------------------------------------------------------------------------------------------

    def _spending(self) -> list[PlayerRow]:
        return [row for row in self._rows if row.model is not None]

    def _unpriced(self) -> list[PlayerRow]:
        return [row for row in self._rows if row.model is not None and not has_prices(row.model)]

    @on(PlayerRow.Known)
    def _player_known(self) -> None:
        """Proposes a limit if a player costs dollars that can be counted."""
        could = not self._unpriced() if self._spending() else None
        if could is not self._could_limit:
            self._could_limit = could
            limit = self.query_one("#dollars", Input)
            limit.disabled = could is None
            with self.prevent(Input.Changed):  # nothing was typed that could solve an error
                limit.value = DOLLARS if could else ""
            limit.placeholder = "no player costs money" if could is None else "no limit"
        self._show_limit()

    @on(Input.Changed, "#dollars")
    def _show_limit(self) -> None:
        shown, spending = self.query_one("#limit-facts", PlainStatic), self._spending()
        who = " and ".join(dict.fromkeys(printable(row.word) for row in spending))
        text, warns = "", False
        if spending and self.query_one("#dollars", Input).value.strip():
            text = f"{who} {'each stop' if len(spending) > 1 else 'stops'} once this is spent"
        elif self._unpriced():
            text = "dollars cannot be limited: its model has no price_in and price_out"
        elif spending:
            text, warns = f"! no limit: {who} can spend any amount", True
        shown.display = bool(text)
        shown.update(Content.styled(text, "$warning" if warns else "$muted"))

    @on(Select.Changed)
    @on(Input.Changed)
    def _changed(self) -> None:
        """Clears the error: the change may have solved it."""
        self.report("")

    # --- starting ------------------------------------------------------------------------------------------------

    @on(Button.Pressed)
    def action_decide(self) -> None:
        self.run_worker(self._check_and_start(), group="start", exclusive=True, exit_on_error=False)

    async def _check_and_start(self) -> None:
        """Checks the players again, because a path may have just been typed. Then checks the numbers and starts."""
        words = tuple(row.word for row in self._rows)
        kernel = next((path for word, path in self._kernels.items() if word in words), None)
        left, right = map(self._player, words)
        if left == right or f"{FILE}{kernel}" in (left, right):
            self.refuse("choose two different players")
            return
        for row in self._rows:
            await row.check()
            if row.trouble:
                self.refuse(f"{row.word} cannot play: see above")
                return
        minutes, dollars = (self.query_one(f"#{name}", Input).value.strip() for name in ("minutes", "dollars"))
        clock, limit = number(minutes, 0.05, 24 * 60), number(dollars, 1e-6, 1e6)
        if clock is None and (minutes or YOU in (left, right)):
            self.refuse("minutes: a number from 0.05 to 1440" + (", or nothing" if left != YOU else ""))
        elif limit is None and dollars:
            self.refuse("dollars: a number above 0, or nothing")
        elif limit is not None and (unpriced := self._unpriced()):
            self.refuse(f"{unpriced[0].word} has no prices: leave dollars empty, or add them to the settings")
        else:
            await self._start(DuelPlan(left, right, clock, limit, self.choice, kernel))

    def _player(self, word: str) -> str:
        """The player as in `DuelPlan`, for a word of the lists."""
        if word in self._kernels:
            return YOU
        rival = self._kernels.get(word.replace(RIVAL, YOU, 1)) if word.startswith(RIVAL) else None
        return f"{FILE}{rival}" if rival is not None else word

    async def _start(self, plan: DuelPlan) -> None:
        """Makes the players, which may read a keyring and test a jail. The dialog stays open until that is done."""
        self.report("starting…")
        try:
            start = await asyncio.to_thread(make_players, self.services, self.problem, plan)
        except ArenaError as error:
            self.refuse(error.one_line)
        else:
            self.dismiss(start)


async def duel_setup(services: Services, problem: Problem, choice: Choice | None, kernel: Path | None) -> DuelSetup:
    """Returns the dialog with the current players: models and programs may have been added since the start.

    Raises:
        ArenaError: the settings file cannot be read, or the device that it names is missing.
    """
    await services.read_players()
    programs = await asyncio.to_thread(known_programs, services.settings)
    device = await asyncio.to_thread(choose_device, services.settings.device)
    return DuelSetup(services, problem, choice, programs, device, kernel)
