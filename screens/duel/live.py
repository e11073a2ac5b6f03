"""The screen of a live duel."""

import asyncio
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.widgets import TextArea

from arena.duel.events import SIDES, SideName, other
from arena.duel.match import Match, Players, duel_players, new_header
from arena.duel.state import DuelState
from arena.errors import ArenaError
from arena.players.make_player import AGENT, MODEL, FilePlayer
from arena.players.player import PlayerSetup, Task
from arena.setting_choice import Choice, choose_setting
from arena.workspace.kernel_folder import shown_name
from arena.workspace.kernels import read_kernel
from arena.workspace.named_kernels import BASELINE, HOUSE, VARIANTS, has_variant, starter
from problems.specification import Problem
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Setting
from screens.actions import bindings
from screens.app_protocol import AppProtocol, DuelPlan
from screens.duel import NOT_COUNTED, DuelScreen
from screens.kernel_buffer import KernelBuffer, OpenKernel
from screens.services import Services
from screens.widgets.editor import Editor
from screens.widgets.key_line import FRAME, entitle
from screens.widgets.text_lines import follow_width

YOU, GUEST = "you", "guest"
MODEL_ROUNDS = 20
KEEP_S, SAID_AGAIN_S = 1.0, 60.0
"""Seconds between two drafts of unsaved text, and between two hints that esc does not leave vim."""
DuelStart = tuple[DuelPlan, Setting, Players]
_PLAYING = {"submit", "pause", "agree", "give_up", "reveal"}
"""Actions that are possible until a duel is decided."""


class LiveDuelScreen(DuelScreen):
    """Plays a match and shows it."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("duel")]

    def __init__(self, parent_app: AppProtocol, problem: Problem, start: DuelStart) -> None:
        """start: see `make_players`.

        Raises:
            FolderUnwritable: the duel's journal cannot be written.
            KernelsLocked: another app edits the kernels of the problem.
        """
        services = parent_app.services
        self.problem = problem
        plan, setting, players = start
        self.plan = plan
        rounds = MODEL_ROUNDS if plan.minutes is not None else 3
        header = new_header(problem, setting, players, plan.minutes, rounds, plan.budget_usd)
        edits: SideName | None = "left" if plan.left == YOU else "right" if plan.right == YOU else None
        super().__init__(parent_app, DuelState(header), edits)
        self.text = ""
        """Unsaved text that the editor starts with; empty: the file's text."""
        self._saving = asyncio.Lock()
        self._saved = False
        """Whether the file was saved during the duel; its player then submits it."""
        self._local: KernelBuffer | None = None
        """The local player's kernel."""
        if edits is not None:
            editor = self.panes[edits]
            assert isinstance(editor, Editor)
            self._local = KernelBuffer(OpenKernel(services.workspace, problem, self.edited_path), editor)
            services.locks.take(problem.stem)
        for name, player in zip(SIDES, players, strict=True):
            if isinstance(player, FilePlayer) and getattr(plan, name) in (YOU, GUEST):
                guests = name != edits and read_kernel(Path(player.kernel_path)).text != starter(problem, BASELINE)
                player.submits_first = guests  # the user's own may be weeks old
        try:
            what, settings = (services.engine, services.paths, problem, header, players), services.settings
            self.match = Match(*what, budget_s=settings.seconds, live_s=settings.live_s)
        except ArenaError:
            if edits is not None:
                services.locks.release(problem.stem)
            raise
        self.state = self.match.state
        self.match.listeners.append(self.hear)

    def on_mount(self) -> None:
        if self.edits is not None:
            self._editor.open_saved(self._buffer.session.read())
            if self.text:
                self._buffer.replace(self.text)
            self.start(self._show_saves(), "watch")
            self.set_interval(KEEP_S, self._keep)
            follow_width(self.query_one(f"#{self.edits}-pane"), self._cursor_moved)
        self.start(self._play(), "duel")

    async def _play(self) -> None:
        await self.match.play()
        if self.services.settings.bell:
            self.app.bell()

    async def _show_saves(self) -> None:
        """Shows what other programs save into the file."""
        async for _ in self._buffer.outside_saves(self):
            self._saved = True

    @property
    def now(self) -> float:
        return self.match.now if not self.state.over else self.state.at

    @property
    def _buffer(self) -> KernelBuffer:
        assert self._local is not None
        return self._local

    @property
    def _editor(self) -> Editor:
        return self._buffer.editor

    @property
    def edited_path(self) -> Path:
        """The file of the local player."""
        assert self.edits is not None
        return Path(self.state.header.player(self.edits).kernel_path)

    @property
    def unsaved(self) -> str:
        """The editor's unsaved text; empty if there is none."""
        return self._editor.file_text if self.edits is not None and self._editor.dirty else ""

    def on_unmount(self) -> None:
        """Releases the kernels, and keeps unsaved text as a draft."""
        if self.edits is None:
            return
        self.services.locks.release(self.problem.stem)
        self._buffer.session.stop_watching()
        try:
            self.keep_text()
        except ArenaError as error:
            self.log.error(error.message)

    def _keep(self) -> None:
        """Keeps unsaved text while it is typed: the process may be killed."""
        if self._buffer.dirty:
            self.start(self._buffer.keep_draft(), "draft")

    def keep_text(self) -> None:
        if self._local is not None:
            self._local.keep_drafts()

    @property
    def draft_of(self) -> str:
        return self.problem.stem if self.unsaved else ""

    @property
    def reopen(self) -> str:
        return f"pkb-arena {self.problem.stem}"

    # --- keys ------------------------------------------------------------------------------------------------

    @property
    def idle_actions(self) -> frozenset[str]:
        """During the duel, the actions for after its end; after it, those for during the duel."""
        after = {"share", "rematch", "leave_duel"}
        if self.state.stage == "abandoned":
            return frozenset(_PLAYING | {"share"})
        if self.state.stage == "ended":
            return frozenset(_PLAYING)
        if self.state.stage == "final":
            after |= _PLAYING - {"reveal"}
        elif self.edits is None:
            after |= {"submit", "give_up"}
        return frozenset(after if self.hidden is not None else after | {"reveal"})

    @on(Editor.Asked)
    def _asked_by_vim(self, event: Editor.Asked) -> None:
        if event.saves:
            self.action_submit()
        if event.leaves and (self.state.over or self.is_sure("leave_duel", NOT_COUNTED, ":q")):
            self.dismiss()

    def action_submit(self) -> None:
        """Submits the kernel: saves it, because each save is a submission."""
        if self.edits is None:
            self.say("No local player: watching only")
        elif self.state.side(self.edits).left:
            self.say("The duel is over; submissions are closed")
        elif self._editor.dirty:
            self.start(self._save(), "save")
        elif any(each.kernel.source == self._editor.file_text for each in self.state.side(self.edits).attempts):
            self.say("Already submitted: no change since your last submission")
        elif self._saved:
            self.say("Saved. It is submitted when your last submission has its verdict.")
        else:
            self.start(self._submit(self.edits), "save")  # the file is older than the duel, so no save submits it

    async def _submit(self, side: SideName) -> None:
        await self.match.submit(side, self._buffer.kernel, shown_name(self.edited_path))

    async def _save(self) -> None:
        async with self._saving:
            self._saved = True
            await self._buffer.save(replace=True)

    def action_complete_name(self) -> None:
        if self.edits is not None:
            self._editor.complete()

    @on(TextArea.SelectionChanged)
    def _cursor_moved(self) -> None:
        if self.edits is not None:
            pane = self.query_one(f"#{self.edits}-pane")
            mode = f"{self._editor.mode} · ".removeprefix(" · ")
            signature = self._editor.signature(pane.size.width - FRAME - len(mode))
            entitle(pane, subtitle=f"{mode}{signature}".removesuffix(" · "))

    def action_share(self) -> None:
        """Shares the result. Before there is one, the key is vim's for redo."""
        if self.edits is not None and self.state.ended is None and self._editor.mode.startswith(("N", "V")):
            self._editor.press("\x12")
        else:
            super().action_share()

    def action_leave_duel(self) -> None:
        if self.edits is None or not self._editor.leave():
            if self.edits is None or self._editor.vim is None or self.state.over:
                super().action_leave_duel()
            elif not self.was_pressed("vim"):  # once, as who lives in vim presses esc out of habit
                self.note_press("vim", SAID_AGAIN_S)
                self.say(":q leaves")

    def may_quit(self) -> bool:
        return self.state.over or self.is_sure("quit", "quits: the duel is not counted")

    def action_pause(self) -> None:
        if self.state.stage == "paused":
            self.match.resume()
        elif self.state.stage == "playing":
            self.match.pause()
        else:
            self.say("The clock has stopped already")

    def action_agree(self) -> None:
        """Marks the local player as done, or both players if none is local. The final begins when both are done."""
        if self._is_decided():
            return
        if self.edits is None:
            self.match.agree("left")
            self.match.agree("right")
        elif self.is_sure("agree", "closes your submissions; the final follows"):
            self.start(self._agree(self.edits), "agree")
            if not self.state.side(other(self.edits)).left:
                self.say("You are done. The final starts when the other player is done.")
            else:
                self.say("Both players are done. The final starts after the last verdict.")

    async def _agree(self, side: SideName) -> None:
        async with self._saving:  # a save that is being written still counts
            self.match.agree(side)

    def action_reveal(self) -> None:
        """Shows the hidden kernels, on a second press of the key: both players must agree to it."""
        if self.hidden is None or self.state.ended is not None:
            self.say("Both kernels are shown")
        elif self.is_sure("reveal", "shows the other player's kernel: press it if both agree"):
            self._shown[self.hidden], self.hidden = 0, None
            self.changed = True

    def action_give_up(self) -> None:
        if self.edits is None:
            self.say("No local player: watching only")
            return
        if self._is_decided():
            return
        if self.is_sure("give_up", "gives up: the other player wins with a correct kernel"):
            self.match.give_up(self.edits)

    def _is_decided(self) -> bool:
        """Returns whether it is too late to be done or to give up; if so, shows the reason."""
        if self.state.over:
            self.say("The duel is over")
        elif self.state.stage == "final":
            self.say("The final is running already")
        return self.state.over or self.state.stage == "final"

    def action_rematch(self) -> None:
        if not self.state.over:
            self.say("A rematch is possible after the duel")
        elif self.is_current:  # else the key was pressed while the rematch opened
            self.parent_app.play_duel(self.problem, self.plan)


def make_players(services: Services, problem: Problem, plan: DuelPlan) -> DuelStart:
    """Returns the plan of a duel, its setting and its players. May take seconds: see `make_player`.

    Raises:
        ArenaError: a player cannot play, or the setting cannot be run.
    """
    assert services.catalogue is not None
    setting = choose_setting(problem, plan.choice or Choice(), services.settings)
    words = (_word(services, problem, plan, plan.left), _word(services, problem, plan, plan.right))
    owners = (plan.left, plan.right)
    setup = PlayerSetup(services.settings, services.catalogue, services.paths)
    players = duel_players(words, owners, Task(problem, setting), setup, plan.budget_usd)
    return plan, setting, players


def _word(services: Services, problem: Problem, plan: DuelPlan, player: str) -> str:
    """Returns the player as a word of the command line; for a user, the path of the file in the workspace."""
    if player not in (YOU, GUEST):
        return player
    mine = plan.kernel or services.workspace.last_open(problem)
    if player == YOU and mine.exists():
        return str(mine)
    return str(services.workspace.create(problem, starter(problem, BASELINE), player))


def opponents(problem: Problem, models: list[str], programs: list[str], device: str) -> list[str]:
    """Returns the possible players of a problem, as words of the command line. device: where the ranks run."""
    house = [HOUSE] if problem.house_source is not None else []
    variants = [word for word in VARIANTS if kind_of(device).has_reference_forms and has_variant(problem, word)]
    agents = [f"{AGENT}{name}" for name in dict.fromkeys([*models, *programs])]
    return [*house, BASELINE, *variants, *agents, *(f"{MODEL}{name}" for name in models), GUEST]
