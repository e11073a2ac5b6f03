"""Small questions over a screen."""

import asyncio
import time
from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.events import Key
from textual.widgets import Button, Input, OptionList
from textual.widgets.option_list import Option

from arena.errors import ArenaError
from screens.dialogs import Dialog
from screens.widgets.text_lines import PlainStatic


class Question(Dialog[bool | None]):
    """A question with two answers; escape gives neither (None)."""

    def __init__(self, title: str, text: str, yes: str, no: str) -> None:
        super().__init__()
        self._title, self._text, self._yes, self._no = title, text, yes, no

    def compose(self) -> ComposeResult:
        with self.frame(self._title, "enter chooses · tab the other · esc neither"):
            yield PlainStatic(self._text)
            with Horizontal(classes="buttons"):
                yield Button(self._yes, variant="primary", id="yes", compact=True)
                yield Button(self._no, id="no", compact=True)

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")


class Ask(Dialog[bool | None]):
    """Asks for one line of text and does something with it. If that cannot be done, says why and stays open."""

    def __init__(
        self, title: str, do: Callable[[str], object], text: str = "", example: str = "", enter: str = "keeps it"
    ) -> None:
        """do: gets the text in a thread. It raises ArenaError if it refuses it. enter: what the key enter does."""
        super().__init__()
        self._title, self._do, self._text, self._example, self._enter = title, do, text, example, enter
        self._doing = False

    def compose(self) -> ComposeResult:
        with self.frame(self._title, f"enter {self._enter} · esc back"):
            yield Input(self._text, placeholder=self._example, compact=True, select_on_focus=False)
            known = self._text and self._example
            yield PlainStatic(f"for example: {self._example}" if known else "", id="report")

    @on(Input.Submitted)
    def _given(self, event: Input.Submitted) -> None:
        if not self._doing:  # a second enter must not start a second sweep
            self._doing = True
            self.report(f"in progress since {time.strftime('%H:%M:%S')}")
            self.run_worker(self._try(event.value.strip()), exit_on_error=False)

    async def _try(self, text: str) -> None:
        try:
            await asyncio.to_thread(self._do, text)
        except ArenaError as error:
            self._doing = False
            self.refuse(error.one_line)
        else:
            self.dismiss(True)


_SENTENCES = {
    "baseline": "a copy of the baseline: correct at once",
    "torch": "plain torch and its collectives",
    "symm": "torch reading peers' memory directly",
    "cpp": "C++ on CPU ranks, compiled when it loads",
    "cuda": "CUDA C++, compiled when it loads",
    "recorded": "launches recorded once, then one C call",
    "triton": "Triton",
}


def template_sentences(*, on_gpus: bool) -> dict[str, str]:
    """Returns the starter templates of this machine, each with a sentence. on_gpus: whether runs use GPUs here."""
    from arena.workspace.named_kernels import GPU_TEMPLATES, template_names
    from sandbox.machine.backends import BACKENDS

    sentences = _SENTENCES | {backend.name: f"CUDA C++ over {backend.title}" for backend in BACKENDS}
    usable = (name for name in template_names() if on_gpus or name not in GPU_TEMPLATES)
    return {name: sentences.get(name, "") for name in usable}


class Choose(Dialog[str | None]):
    """A choice of one of a few options, each with a sentence."""

    def __init__(self, title: str, options: dict[str, str]) -> None:
        super().__init__()
        self._title, self._options = title, options

    def on_key(self, event: Key) -> None:
        """A letter goes to the next option that begins with it."""
        rows, names = self.query_one(OptionList), [*self._options]
        order = sorted(range(len(names)), key=lambda at: at <= (rows.highlighted or 0))
        rows.highlighted = next((at for at in order if names[at].startswith(event.character or " ")), rows.highlighted)

    def compose(self) -> ComposeResult:
        with self.frame(self._title, "enter chooses · a letter goes to it · esc back"):
            width = max(map(len, self._options), default=0) + 2
            rows = {name: ((name.ljust(width), "$accent"), sentence) for name, sentence in self._options.items()}
            yield OptionList(*(Option(Content.assemble(*row), id=name) for name, row in rows.items()))

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)


class Welcome(Dialog[bool]):
    """Dismisses with True to open the first problem and run its starter kernel."""

    TO_READ = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "dismiss(True)", "run a first kernel"),
        Binding("escape", "dismiss(False)", "to the list of problems"),
    ]

    def __init__(self, machine: str, problems: int, first: str) -> None:
        super().__init__()
        self._machine, self._problems, self._first = machine, problems, first

    def compose(self) -> ComposeResult:
        facts = {"here": self._machine, "problems": str(self._problems), "first": self._first}
        keys = {
            "enter": "opens and runs it with a correct kernel",
            "esc": "goes to the list of problems",
            self.key_words("help"): f"help; {self.key_words('command_palette')}: menu of all commands",
        }
        with self.frame("Welcome to pkb-arena", ""):
            yield PlainStatic(
                "Write a multi-GPU kernel and save it. Every save shows whether it is correct, and its speedup."
            )
            for rows, style in ((facts, "$muted"), (keys, "bold $accent")):
                lines = (Content.assemble((f"{name:<10}", style), words) for name, words in rows.items())
                yield PlainStatic(Content("\n").join([Content(""), *lines]))
