"""Everything a person can do, in one table: keys, footer, command palette and help are made from it."""

import re
from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding

Scope = Literal["everywhere", "problems", "kernel", "duel", "replay", "model", "sweep", "profile"]


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
    Action("save", "ctrl+s", "save & run", "Save the kernel and run it.", "kernel"),
    Action("run", "f5", "run", "Run the kernel as it is in the editor (it is saved first).", "kernel"),
    Action(
        "cancel",
        "escape",
        "cancel",
        "Cancel the run in any phase; when idle: back to the editor, twice: to the problems.",
        "kernel",
        show=False,
    ),
    Action(
        "edit_outside",
        "f2",
        "$EDITOR",
        "Open the kernel in your own editor; saving there runs it too.",
        "kernel",
    ),
    Action(
        "next_view",
        "f3",
        "view",
        "Next view: kernel, baseline, diff, card (and result, log when narrow).",
        "kernel",
    ),
    Action(
        "find",
        "ctrl+f",
        "find",
        "Find in the kernel, the baseline, or the log if it has the keyboard; replace in the kernel.",
        "kernel",
    ),
    Action(
        "go_to_line",
        "ctrl+g",
        "go to line",
        "Go to a line of the kernel or the baseline.",
        "kernel",
        show=False,
    ),
    Action(
        "wrap",
        "shift+f4,f16",
        "wrap lines",
        "Wrap long lines, or let them reach beyond the pane.",
        "kernel",
        show=False,
    ),
    Action(
        "copy_path",
        "shift+f2,f14",
        "copy path",
        "Copy the path of the kernel's file: any editor may edit it, every save is judged.",
        "kernel",
        show=False,
    ),
    Action(
        "jump", "ctrl+o", "panes", "Go to a pane or a view: each shows its letter, press it.", "everywhere"
    ),
    Action(
        "zoom", "ctrl+t", "zoom", "Give the pane with the focus the whole screen; again: back.", "everywhere"
    ),
    Action(
        "next_pane",
        "ctrl+n",
        "next pane",
        "Go to the next pane; tab does it, too, outside the editor.",
        "kernel",
        show=False,
    ),
    Action("setting", "f4", "size", "Choose preset, sizes, world and dtype of the runs.", "kernel"),
    Action("history", "f6", "history", "Every revision with its verdict; restore or compare one.", "kernel"),
    Action(
        "measure_on",
        "ctrl+l",
        "measure on",
        "Judge the same revision again with a longer time budget: 4 times as long, then 16 times.",
        "kernel",
    ),
    Action("ask_model", "f7", "ask model", "Have a model write kernels for this problem.", "kernel"),
    Action("duel", "f8", "duel", "Duel at this problem: against the house, a model or a guest.", "kernel"),
    Action("profile", "shift+f6,f18", "profile", "Why is it slow: lanes and words of every rank.", "kernel"),
    Action(
        "problems",
        "f10",
        "problems",
        "Back to the list of problems; the run and what you typed are kept.",
        "kernel",
    ),
    Action(
        "baseline_run",
        "shift+f5,f17",
        "run baseline",
        "Run the baseline against itself: it must come out even.",
        "kernel",
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
    Action(
        "ask_here",
        "m",
        "ask model",
        "Have a model write kernels for the problem under the cursor.",
        "problems",
    ),
    Action("duel_here", "d", "duel", "Duel at the problem under the cursor.", "problems"),
    Action(
        "board",
        "b",
        "board",
        "The board: every player's results by problem and category, beside published ones.",
        "problems",
    ),
    Action(
        "duel_board",
        "shift+d,D",
        "duels",
        "The duel board: ratings, and every duel to replay.",
        "problems",
        show=False,
    ),
    Action(
        "campaigns",
        "c",
        "sweeps",
        "Sweeps: problems by players as `pkb-arena sweep` fills them in, every result to replay.",
        "problems",
        show=False,
    ),
    Action("open_cell", "enter", "open", "Replay the results under the cursor.", "sweep"),
    Action(
        "filter_campaign",
        "slash",
        "filter",
        "Filter by id, words, category, or: solved unsolved wrong open.",
        "sweep",
    ),
    Action("next_campaign", "n", "next", "The sweep before this one.", "sweep"),
    Action("leave_campaign", "escape", "leave", "Back to the problems; first out of the filter.", "sweep"),
    Action("write_trace", "t", "write trace", "Write the profile as a trace that Perfetto opens.", "profile"),
    Action(
        "leave_profile",
        "escape",
        "leave",
        "Back to the kernel; a profile that is being made ends.",
        "profile",
    ),
    Action("hand_in", "ctrl+s", "hand in", "Save your kernel: it is judged at once.", "duel"),
    Action("pause", "f6", "pause", "Stop the clock and the judging, or let them go on.", "duel"),
    Action("agree", "f7", "final", "You are done; the final begins when the other side is.", "duel"),
    Action(
        "give_up",
        "shift+f7,f19",
        "give up",
        "Leave without a kernel, pressed twice: the other side wins if it has a right one.",
        "duel",
    ),
    Action("share", "f8", "share", "Put the result into the clipboard, and write its picture.", "duel"),
    Action("rematch", "f5", "rematch", "Play the same duel again.", "duel"),
    Action("replay_pause", "space", "pause", "Hold the replay, or let it go on.", "replay"),
    Action("replay_back", "left", "back", "To the event before: a kernel, a verdict, the final.", "replay"),
    Action("replay_on", "right", "next", "To the next event: a kernel, a verdict, the final.", "replay"),
    Action("slower", "f2,minus", "slower", "Replay at a slower pace.", "replay"),
    Action("faster", "f3,plus", "faster", "Replay at a faster pace, up to 20 times.", "replay"),
    Action("replay_start", "home", "start", "Replay from the start.", "replay", show=False),
    Action("replay_end", "end", "to the end", "To the end of the duel.", "replay"),
    Action(
        "replay_share", "f8", "share", "Put the result into the clipboard, and write its picture.", "replay"
    ),
    Action("leave_replay", "escape", "leave", "Back to the duels.", "replay"),
    Action("leave_duel", "escape", "leave", "Leave the duel; twice while it is played.", "duel", show=False),
    Action(
        "take_over",
        "t",
        "take over",
        "Put the kernel under the cursor into your editor; undo brings back what was there. Enter does it, too.",
        "model",
    ),
    Action(
        "find_text", "ctrl+f", "find", "Find in the text of the kernel or the answer.", "model", show=False
    ),
    Action("stop_model", "s", "stop", "Stop the model; its kernels are kept.", "model"),
    Action(
        "next_text",
        "f3",
        "view",
        "Next view: the kernel, the whole answer, what the model was given.",
        "model",
    ),
    Action("ask_again", "m", "ask again", "Ask a model again, with other limits.", "model"),
    Action("leave_model", "escape", "leave", "Leave; twice while the model works.", "model"),
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
    Action(
        "next_theme",
        "shift+f9,f21",
        "theme",
        "Next theme; the palette has them by name.",
        "everywhere",
        show=False,
    ),
    Action("quit", "ctrl+q", "quit", "Leave. What you typed is kept.", "everywhere"),
)


_KEY_WORDS = {
    "escape": "esc",
    "slash": "/",
    "question_mark": "?",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "pageup": "page up",
    "pagedown": "page down",
    "minus": "-",
    "plus": "+",
}


def key_words(keys: str) -> str:
    """Keys as they are written on the screen: "F7", "esc", "ctrl+l", "/"; several are separated by commas."""
    words = []
    names = keys.split(",")
    shifted = {f"f{int(number) + 12}" for number in re.findall(r"shift\+f(\d+)", keys)}
    for sent in names:
        key = sent
        if key in shifted or (key.startswith("shift+") and key.removeprefix("shift+").upper() in names):
            continue  # terminals send one key in two ways
        if (match := re.fullmatch(r"f(\d+)", key)) and int(match[1]) > 12:
            key = f"shift+f{int(match[1]) - 12}"  # as most terminals send it
        function_key = re.fullmatch(r"(?:\w+\+)*f\d+", key)
        words.append(re.sub(r"f(\d+)$", r"F\1", key) if function_key else _KEY_WORDS.get(key, key))
    return " or ".join(dict.fromkeys(words))


def short_key_words(key: str) -> str:
    """A key as it is written where there is little room: "^s", "F5", "⇧F2"."""
    return key_words(key).replace("ctrl+", "^").replace("shift+", "⇧")


def bindings(scope: Scope) -> list[Binding]:
    """The bindings of one scope, ready for a class's BINDINGS; ids make them remappable.

    Keys of the kernel screen come before the editor's own, which uses some of them otherwise.
    """
    return [
        Binding(
            action.key,
            action.name,
            action.title,
            show=action.show,
            id=action.name,
            tooltip=action.help,
            priority=scope in ("kernel", "duel", "replay"),
        )
        for action in ACTIONS
        if action.scope == scope
    ]


def action_named(name: str) -> Action | None:
    """The action of this name, if there is one."""
    return next((action for action in ACTIONS if action.name == name), None)


def key_of(name: str, keymap: dict[str, str]) -> str:
    """The key of an action as it is written on the screen: "F7", "ctrl+l"."""
    key = keymap.get(name) or next(action.key for action in ACTIONS if action.name == name)
    return key_words(key)
