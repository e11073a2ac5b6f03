"""Everything a person can do, in one table: keys, footer, command palette and help are made from it."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider

Scope = Literal["everywhere", "problems", "arena", "duel"]


@dataclass(frozen=True)
class Action:
    """One thing to do."""

    name: str
    """Also the key of a remapping in the settings file: `[keymap] run = "ctrl+r"`."""
    key: str
    title: str
    """One or two words for the footer."""
    help: str
    """A sentence for the help screen and the palette."""
    scope: Scope
    show: bool = True
    """Shown in the footer."""


ACTIONS = (
    Action("save", "ctrl+s", "save & run", "Save the kernel and run it.", "arena"),
    Action("run", "f5", "run", "Run the kernel as it is in the editor (it is saved first).", "arena"),
    Action(
        "cancel",
        "escape",
        "cancel",
        "Cancel the run in any phase; twice when idle: back to the problems.",
        "arena",
        show=False,
    ),
    Action(
        "edit_outside",
        "f2",
        "$EDITOR",
        "Open the kernel in your own editor; saving there runs it too.",
        "arena",
    ),
    Action(
        "next_view",
        "f3",
        "view",
        "Next view: kernel, baseline, diff, card (and result, log when narrow).",
        "arena",
    ),
    Action("setting", "f4", "size", "Choose preset, sizes, world and dtype of the runs.", "arena"),
    Action(
        "problems",
        "f10",
        "problems",
        "Back to the list of problems; the run and what you typed are kept.",
        "arena",
    ),
    Action("history", "f6", "history", "Every revision with its verdict; restore or compare one.", "arena"),
    Action("duel", "f8", "duel", "Duel at this problem: against the house, a model or a guest.", "arena"),
    Action("next_pane", "shift+f3", "pane", "Move between editor, result and log.", "arena", show=False),
    Action(
        "baseline_run",
        "shift+f5",
        "run baseline",
        "Run the baseline against itself: it must come out even.",
        "arena",
        show=False,
    ),
    Action("open", "enter", "open", "Open the problem under the cursor.", "problems", show=False),
    Action(
        "filter",
        "slash",
        "filter",
        "Filter by id, words, origin, collective, class:C, or state: solved, unsolved, faster, wrong…",
        "problems",
    ),
    Action(
        "new",
        "n",
        "new",
        "Start a kernel from a template; the one you have stays in its history.",
        "problems",
    ),
    Action("duel_here", "d", "duel", "Duel at the problem under the cursor.", "problems"),
    Action(
        "duel_board",
        "shift+d,D",
        "duels",
        "The duel board: ratings, and every duel to replay.",
        "problems",
        show=False,
    ),
    Action("hand_in", "ctrl+s", "hand in", "Save your kernel: it is judged at once.", "duel"),
    Action("pause", "f6", "pause", "Stop the clock and the judging, or let them go on.", "duel"),
    Action("agree", "f7", "final", "You are done; the final begins when the other side is.", "duel"),
    Action(
        "give_up",
        "shift+f7",
        "give up",
        "Leave without a kernel: the other side wins if it has a right one.",
        "duel",
    ),
    Action("share", "f8", "share", "Put the result into the clipboard, and write its picture.", "duel"),
    Action("rematch", "f5", "rematch", "Play the same duel again.", "duel"),
    Action("slower", "f2", "slower", "Replay at a slower pace.", "duel", show=False),
    Action("faster", "f3", "faster", "Replay at a faster pace, up to 20 times.", "duel", show=False),
    Action("leave_duel", "escape", "leave", "Leave the duel; twice while it is played.", "duel", show=False),
    Action(
        "sort", "s", "sort", "Sort by the next column; a click on a column's head does the same.", "problems"
    ),
    Action("read_card", "space", "card", "Read the whole card of the problem.", "problems"),
    Action(
        "help", "f1", "help", "Keys, how judging works, and a first kernel in five minutes.", "everywhere"
    ),
    Action("settings", "f9", "settings", "Settings, each with a sentence.", "everywhere"),
    Action(
        "doctor",
        "f12",
        "doctor",
        "What this machine can do, and what to do about the rest.",
        "everywhere",
        show=False,
    ),
    Action("next_theme", "ctrl+t", "theme", "Next theme.", "everywhere", show=False),
    Action("quit", "ctrl+q", "quit", "Leave. What you typed is kept.", "everywhere"),
)


def bindings(scope: Scope) -> list[Binding]:
    """The bindings of one scope, ready for a class's BINDINGS; ids make them remappable.

    Keys of the arena come before the editor's own, which uses some of them otherwise.
    """
    return [
        Binding(
            action.key,
            action.name,
            action.title,
            show=action.show,
            id=action.name,
            tooltip=action.help,
            priority=scope in ("arena", "duel"),
        )
        for action in ACTIONS
        if action.scope == scope
    ]


def unknown_names(keymap: dict[str, str]) -> list[str]:
    """Names in a keymap that stand for no action."""
    names = {action.name for action in ACTIONS}
    return [name for name in keymap if name not in names]


class ActionCommands(Provider):
    """The palette's view of the table: what can be done on the screen below it."""

    async def discover(self) -> Hits:
        for action in self._actions():
            yield DiscoveryHit(action.title, partial(self._do, action), help=action.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in self._actions():
            score = max(matcher.match(action.title), matcher.match(action.help) * 0.9)
            if score > 0:
                yield Hit(score, matcher.highlight(action.title), partial(self._do, action), help=action.help)

    def _actions(self) -> list[Action]:
        scope = getattr(self.screen, "SCOPE", "everywhere")
        return [action for action in ACTIONS if action.scope in ("everywhere", scope)]

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
        catalogue = self.app.services.catalogue  # type: ignore[attr-defined]
        for problem in catalogue.problems if catalogue else []:
            name = f"{problem.id} {problem.slug}"
            score = matcher.match(f"{name} {problem.title}")
            if score > 0:
                yield Hit(score, f"{name}", partial(self.app.open_problem, problem), help=problem.title)  # type: ignore[attr-defined]
