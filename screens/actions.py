"""All actions in one table. Keys, footer, command palette and help are made from it."""

import re
from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding

Scope = Literal["everywhere", "problems", "kernel", "duel", "replay", "model", "sweep", "profile"]
SCOPE_WORDS: dict[Scope, str] = {
    "problems": "in the list of problems",
    "kernel": "at a kernel",
    "duel": "in a duel",
    "replay": "in the replay of a duel",
    "model": "while a model writes",
    "sweep": "in a sweep",
    "profile": "at a profile",
    "everywhere": "everywhere",
}


@dataclass(frozen=True)
class Action:
    """One action of the user."""

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


# fmt: off
ACTIONS = (
    Action("save", "ctrl+s", "save & run", "Save the kernel and run it.", "kernel"),
    Action("run", "f5", "run", "Run the kernel in the editor; it is saved first.", "kernel"),
    Action("cancel", "escape", "cancel", "Cancel the run; without a run: leave, on the second press.", "kernel", False),
    Action("edit_outside", "f2", "$EDITOR", "Open the kernel in your own editor; every save runs it.", "kernel"),
    Action("next_view", "f3", "view", "Next view: kernel, baseline, diff, card.", "kernel"),
    Action("find", "ctrl+f", "find", "Find in the text or in the log; replace in the kernel.", "kernel"),
    Action("go_to_line", "ctrl+g", "go to line", "Go to a line of the kernel or the baseline.", "kernel", False),
    Action("wrap", "shift+f4,f16", "wrap lines", "Wrap long lines in the editor, or stop wrapping.", "kernel", False),
    Action("copy_path", "shift+f2,f14", "copy path", "Copy the path of the kernel's file.", "kernel", False),
    Action("jump", "ctrl+o", "panes", "Go to a pane or a view by its letter.", "everywhere"),
    Action("zoom", "ctrl+t", "zoom", "Show the pane with the focus alone; again: all panes.", "everywhere"),
    Action("next_pane", "ctrl+n", "next pane", "Go to the next pane; tab outside the editor.", "kernel", False),
    Action("setting", "f4", "size", "Choose preset, sizes, world and dtype of the runs.", "kernel"),
    Action("history", "f6", "history", "Every revision with its verdict; restore or compare one.", "kernel"),
    Action("variants", "shift+f3,f15", "kernels", "Your kernels of this problem: open, copy or rename one.", "kernel", False),
    Action("measure_on", "ctrl+l", "measure longer", "Run again with 4 times, then 16 times the budget.", "kernel"),
    Action("ask_model", "f7", "ask model", "Let a model write kernels for this problem.", "kernel"),
    Action("duel", "f8", "duel", "Start a duel against the house kernel, a model or a guest.", "kernel"),
    Action("profile", "shift+f6,f18", "profile", "Profile the kernel: a timeline of every rank.", "kernel"),
    Action("problems", "f10", "problems", "Back to the problems; your text and the run are kept.", "kernel"),
    Action("baseline_run", "shift+f5,f17", "run baseline", "Time the baseline against itself.", "kernel", False),
    Action("open", "enter", "open", "Open the problem under the cursor.", "problems", False),
    Action("filter", "slash", "filter", "Filter by id, word, collective, class:C, or solved, faster…", "problems"),
    Action("new", "n", "new", "Start a kernel from a template; your old one stays in the history.", "problems"),
    Action("ask_here", "m", "ask model", "Let a model write kernels for this problem.", "problems"),
    Action("duel_here", "d", "duel", "Start a duel at the problem under the cursor.", "problems"),
    Action("board", "b", "board", "The results of every player, by problem and category.", "problems"),
    Action("duel_board", "shift+d,D", "duels", "Ratings, and every duel to replay.", "problems", False),
    Action("campaigns", "c", "sweeps", "Results of `pkb-arena sweep`, each to replay.", "problems", False),
    Action("open_cell", "enter", "open", "Replay the results under the cursor.", "sweep"),
    Action("filter_campaign", "slash", "filter", "Filter by id, word, category, or solved, wrong…", "sweep"),
    Action("next_campaign", "n", "next", "Show the sweep before this one.", "sweep"),
    Action("leave_campaign", "escape", "leave", "Clear the filter; without one: back to the problems.", "sweep"),
    Action("write_trace", "t", "write trace", "Write the profile as a trace for ui.perfetto.dev.", "profile"),
    Action("leave_profile", "escape", "leave", "Back to the kernel; stops profiling.", "profile"),
    Action("hand_in", "ctrl+s", "submit", "Save and submit your kernel.", "duel"),
    Action("pause", "f6", "pause", "Pause the duel, or continue it.", "duel"),
    Action("agree", "f7", "final", "You are done. The final starts when the other player is done.", "duel"),
    Action("give_up", "shift+f7,f19", "give up", "Leave without a kernel; press it twice.", "duel"),
    Action("share", "f8", "share", "Copy the result and write its picture.", "duel"),
    Action("rematch", "f5", "rematch", "Play the same duel again.", "duel"),
    Action("replay_pause", "space", "pause", "Pause the replay, or continue it.", "replay"),
    Action("replay_back", "left", "back", "Go to the event before: a kernel, a verdict, the final.", "replay"),
    Action("replay_on", "right", "next", "Go to the next event: a kernel, a verdict, the final.", "replay"),
    Action("slower", "f2,minus", "slower", "Replay more slowly.", "replay"),
    Action("faster", "f3,plus", "faster", "Replay faster, up to 20 times.", "replay"),
    Action("replay_start", "home", "start", "Go to the start of the duel.", "replay", False),
    Action("replay_end", "end", "to the end", "Go to the end of the duel.", "replay"),
    Action("replay_share", "f8", "share", "Copy the result and write its picture.", "replay"),
    Action("leave_replay", "escape", "leave", "Back to the duels.", "replay"),
    Action("leave_duel", "escape", "leave", "Leave the duel; press it twice during the duel.", "duel"),
    Action("reveal", "f3", "show both", "Show the other player's kernel before the final; press it twice.", "duel"),
    Action("take_over", "t", "take over", "Put this kernel into your editor; ctrl+z undoes it.", "model"),
    Action("find_text", "ctrl+f", "find", "Find in the text of the kernel or the answer.", "model", False),
    Action("stop_model", "s", "stop", "Stop the model; its kernels are kept.", "model"),
    Action("next_text", "f3", "view", "Next view: kernel, answer, prompt.", "model"),
    Action("ask_again", "m", "ask again", "Ask a model again, with other limits.", "model"),
    Action("leave_model", "escape", "leave", "Leave; press it twice while the model works.", "model"),
    Action("sort", "s", "sort", "Sort by the next column.", "problems"),
    Action("read_card", "space", "card", "Read the card of the problem.", "problems"),
    Action("help", "f1", "help", "Keys, signs, how a kernel is judged, a first kernel.", "everywhere"),
    Action("command_palette", "ctrl+p", "menu", "All commands, problems and themes by name.", "everywhere"),
    Action("settings", "f9", "settings", "Settings, each with a sentence.", "everywhere"),
    Action("doctor", "f12", "doctor", "What this machine can do, and how to fix the rest.", "everywhere", False),
    Action("next_theme", "shift+f9,f21", "theme", "Next theme; the menu has them by name.", "everywhere", False),
    Action("quit", "ctrl+q", "quit", "Quit. Unsaved text is kept as a draft.", "everywhere"),
)
# fmt: on
PLACES = ("board", "duel_board", "campaigns")
"""Actions of the list of problems that the menu offers on every screen."""


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
    """The bindings of one scope for a class's BINDINGS; their ids make them remappable.

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
            priority=scope in ("kernel", "duel", "replay") or action.name == "command_palette",
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
