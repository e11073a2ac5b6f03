"""The dialog before a model is asked: which model, how, and its limits."""

import asyncio
from dataclasses import replace

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Button, Input, Select

from arena.errors import UsageError
from arena.models.budget import BudgetPool, has_prices, price_words
from arena.players.agent import PATIENCE
from arena.players.make_player import ModelPlayer
from arena.players.player import PlayerKind, PlayerName, PlayerSetup
from arena.runs.origin import Origin
from arena.settings import ModelSettings
from arena.words.untrusted_text import printable
from arena.workspace.named_kernels import BASELINE, starter
from problems.specification import Problem
from sandbox.protocol.kernel_files import Kernel
from screens.dialogs import DecidingDialog, field, number, one_of
from screens.model.model_session import ModelPlan
from screens.widgets.text_lines import PlainStatic

IMPROVE, INDEPENDENT = "improve by the verdicts", "independent answers"
ONE_SETTING, OTHER_SIZES = "this setting", "three random other settings, too"
ANSWERS, DOLLARS = "10", "1"
MOST_ANSWERS = 1000
_SENTENCES = (
    "The model gets the problem, its baseline, facts of this machine and the kit's documentation. Kernels run isolated. "
    f"To {IMPROVE} the model gets the verdict on its last kernel; {INDEPENDENT} do not depend on each other."
)
_IMPROVES = "From a kernel, the model gets it with its verdict, and its best one is timed against it in one run."
THE_BASELINE = "the baseline"

NO_MODEL = (
    "No model is set up. `pkb-arena stand-in` in another terminal plays one without a key or money. "
    "The settings file has two examples: remove the # signs of one, save, and close the editor. "
    "An API key comes from the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY...) or the system's keyring."
)


class ModelSetup(DecidingDialog[ModelPlan | None]):
    """Dismisses with the plan, once the API key of its model has been found."""

    def __init__(
        self, problem: Problem, setup: PlayerSetup, origin: Origin | None = None, *, improve: bool = False
    ) -> None:
        """setup: its settings have at least one model. origin: a kernel to improve. improve: names that in the title."""
        super().__init__()
        self.problem = problem
        self.setup = setup
        self.origin = origin
        self.improve = improve
        self.settings = setup.settings

    def compose(self) -> ComposeResult:
        names = list(self.settings.models)
        what = f"Improve {printable(self.origin.name)}" if self.origin and self.improve else "Ask a model"
        title = f"{what} · {self.problem.id} {self.problem.slug}"
        with self.frame(title, "enter starts · space opens a list · esc back"):
            yield field("model", one_of("model", names, names[0]))
            yield PlainStatic(_facts(self.settings.models[names[0]]), id="model-facts", classes="sentence")
            if self.origin is not None:
                starts = {THE_BASELINE: False, printable(self.origin.name): True}
                own = self.origin.kernel != Kernel(starter(self.problem, BASELINE))
                yield field("from", one_of("from", starts, own))
            yield field("how", one_of("how", (IMPROVE, INDEPENDENT), IMPROVE))
            yield field("sizes", one_of("sizes", (ONE_SETTING, OTHER_SIZES), ONE_SETTING))
            yield field("answers", Input(ANSWERS, id="answers", compact=True))
            yield field("", Input(DOLLARS, id="limit", placeholder="no limit", compact=True))
            yield PlainStatic("", id="report")
            yield PlainStatic(_SENTENCES if self.origin is None else f"{_SENTENCES} {_IMPROVES}", classes="note")
            yield Horizontal(Button("start", variant="primary", id="start", compact=True), classes="buttons")

    def on_mount(self) -> None:
        self.query_one("#start").focus()

    @property
    def _model_name(self) -> str:
        return str(self.query_one("#model", Select).value)

    @property
    def _model(self) -> ModelSettings:
        return self.settings.models[self._model_name]

    @on(Select.Changed, "#model")
    def _model_chosen(self) -> None:
        """Shows the model's facts. The limit is in dollars if the model has prices, else in tokens."""
        model, limit = self._model, self.query_one("#limit", Input)
        priced = has_prices(model)
        label = "dollars" if priced else "tokens"
        was = str(self.query_one("#limit-label", PlainStatic).content)
        if was != label:
            limit.value = DOLLARS if priced else ""
        self.query_one("#limit-label", PlainStatic).update(label)
        self.query_one("#model-facts", PlainStatic).update(_facts(model))

    @on(Button.Pressed)
    def action_decide(self) -> None:
        answers, limit = (self.query_one(f"#{name}", Input).value.strip() for name in ("answers", "limit"))
        count, most = number(answers, 1, MOST_ANSWERS), number(limit, 1e-6, 1e12)
        if count is None or not answers.isdecimal():
            self.refuse(f"answers: a whole number from 1 to {MOST_ANSWERS}")
        elif most is None and limit:
            self.refuse("the limit is a number above 0, or nothing")
        else:
            self.run_worker(self._plan(int(answers), most), exclusive=True, exit_on_error=False)

    async def _plan(self, answers: int, limit: float | None) -> None:
        """Looks for the API key, perhaps in a keyring, and dismisses with the plan if the key is found."""
        name, priced = self._model_name, has_prices(self._model)
        improves = self.query_one("#how", Select).value == IMPROVE
        other_sizes = self.query_one("#sizes", Select).value == OTHER_SIZES
        origin = self.origin if self.origin is not None and self.query_one("#from", Select).value else None
        tokens = None if priced or limit is None else round(limit)
        setup = replace(
            self.setup, pool=BudgetPool(limit if priced else None, tokens), patience=PATIENCE if improves else None
        )
        kind = PlayerKind.AGENT if improves else PlayerKind.MODEL
        try:
            player = await asyncio.to_thread(ModelPlayer, PlayerName(kind, name), setup)
        except UsageError as error:
            self.refuse(error.one_line)
            return
        words = "" if limit is None else f"${limit:g}" if priced else f"{limit:.0f} tokens"
        self.dismiss(ModelPlan(player, improves, answers, words, origin, other_sizes))


def _facts(model: ModelSettings) -> str:
    """Returns the provider's name of the model, the provider and the prices."""
    return f"{model.model} · {model.provider} · {price_words(model)}"
