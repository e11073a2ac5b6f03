"""An agent: a model writes a kernel, the judge runs it, the model reads the verdict and writes the next one.

A kernel reaches the judge as the model's answer, or by its call of the tool `run`: both are attempts alike.
"""

import re
from dataclasses import dataclass, field, replace

from arena.errors import ArenaError
from arena.models.answer import ModelAnswer
from arena.models.budget import Spent
from arena.models.conversation import AnyPiece, Finish, Message, ToolCall, ToolResult
from arena.models.model import ModelPlayer
from arena.players.attempts import Attempt, best_of
from arena.players.judge import JudgeKernel
from arena.players.prompts.feedback import build_words, fenced, next_turn, verdict_words
from arena.players.prompts.prompt import Prompt
from arena.players.tools import KernelTools
from arena.players.trace import TraceRecorder
from sandbox.protocol.verdict import Verdict

STEPS = 20
"""Steps after which a published agent gained no more."""
PATIENCE = 6
"""Steps without a gain before it is left."""
REFUSALS = 2
"""In a row: a model that declines twice means it."""
HARNESS_ERRORS = 2


@dataclass
class Agent:
    """One model at one problem. `run` once; what it found so far can be read at any time, also after a failure."""

    player: ModelPlayer
    judge: JudgeKernel | None
    """None: kernels are written and not run."""
    prompt: Prompt
    recorder: TraceRecorder
    steps: int = STEPS
    patience: int | None = PATIENCE
    """None: never mind gains. Samples are independent of each other when `feedback` is off."""
    feedback: bool = True
    build: JudgeKernel | None = None
    """Compiles a kernel and calls it without judging it; None: the model is not offered that."""
    attempts: list[Attempt] = field(default_factory=list, init=False)
    reason: str = field(default="", init=False)
    _gained_at: int = field(default=0, init=False)
    _booked: Spent = field(default=Spent(), init=False)

    async def run(self) -> Attempt | None:
        """Works until a limit is reached. Returns the best attempt that was judged.

        Raises:
            ArenaError: the provider or the harness failed; the trace says so and has all until then.
        """
        self.reason = "cancelled"
        try:
            self.reason = await self._work()
        except ArenaError as error:
            self.reason = f"failed: {error.message}"
            raise
        finally:
            best = self.best
            self.recorder.ended(
                self.reason, best.step if best is not None else None, self.player.budget.spent
            )
        return self.best

    @property
    def best(self) -> Attempt | None:
        """The best attempt so far."""
        return best_of(self.attempts)

    async def _work(self) -> str:
        while len(self.attempts) < self.steps:
            if self.player.budget.reached:
                return "budget"
            answer = await self._step()
            if answer.outcome == "budget":
                return "budget"
            if self.feedback and (reason := self._give_up()):
                return reason
        return "steps"

    async def _step(self) -> ModelAnswer:
        """One answer, after as many tool calls as the model wants; leaves at least one more attempt."""
        conversation = self.prompt.conversation
        if self.attempts and self.feedback:
            conversation = next_turn(conversation, self.attempts, self.prompt.version)
        tools = self._tools()
        if tools is not None:
            conversation = conversation.offering(*tools.tools)
        began = len(self.attempts)
        self._booked = self.player.budget.spent
        self.recorder.ask(began + 1, conversation)
        while True:
            answer = await self.player.answer(conversation, self._hear)
            if tools is None or not answer.calls or answer.finish.reason in ("budget", "refusal"):
                break
            if tools.left <= 0:  # it was told so, and calls on
                break
            results = []
            for call in answer.calls:
                if len(self.attempts) >= self.steps:
                    return answer
                results.append(await self._call(tools, call))
            if len(self.attempts) >= self.steps:
                return answer
            said = Message("assistant", answer.text, answer.calls, kept=answer.kept)
            conversation = conversation.then(said, Message("user", "", results=tuple(results)))
        await self._take(answer, self.attempts[began:])
        return answer

    async def _take(self, answer: ModelAnswer, ran: list[Attempt]) -> None:
        """The answer's kernel is judged, unless it is one of those that were run on the way to it."""
        source = answer.source if answer.outcome == "kernel" else ""
        if ran and (not source or any(attempt.answer.source == source for attempt in ran)):
            self.recorder.answered(answer.outcome, answer.reason, "", self._spent())
            return
        self.recorder.step = len(self.attempts) + 1
        answer = replace(answer, spent=self._spent())
        self.recorder.answered(answer.outcome, answer.reason, source, answer.spent)
        if not source or self.judge is None:
            self._keep(Attempt(self.recorder.step, answer))
        else:
            await self._judge(self.judge, answer)

    async def _judge(self, judge: JudgeKernel, answer: ModelAnswer) -> Attempt:
        step = len(self.attempts) + 1
        judgement = await judge(answer.source, self._file_name(step))
        attempt = Attempt(step, answer, judgement)
        self.recorder.judged(judgement.report, judgement.printed, attempt.gains_on(self.best))
        self._keep(attempt)
        return attempt

    def _keep(self, attempt: Attempt) -> None:
        if attempt.gains_on(self.best):
            self._gained_at = attempt.step
        self.attempts.append(attempt)

    def _file_name(self, step: int) -> str:
        return re.sub(r"[^\w.-]+", "-", f"{self.player.name}-{step}.py")

    def _spent(self) -> Spent:
        """Since the last kernel."""
        before, self._booked = self._booked, self.player.budget.spent
        return self._booked - before

    # --- tools -----------------------------------------------------------------------------------------------

    def _tools(self) -> KernelTools | None:
        """For one step. Independent samples have none: what one run told would be known to the next."""
        if self.judge is None or not self.feedback or not self.player.takes_tools:
            return None
        return KernelTools(self.prompt.version, self._run, self._build if self.build is not None else None)

    async def _call(self, tools: KernelTools, call: ToolCall) -> ToolResult:
        self.recorder.called(call)
        result = await tools.call(call)
        self.recorder.returned(result)
        return result

    async def _run(self, source: str) -> str:
        assert self.judge is not None
        self.recorder.step = len(self.attempts) + 1
        answer = ModelAnswer(fenced(source, "python"), Finish("stop"), self._spent())
        self.recorder.answered(answer.outcome, answer.reason, answer.source, answer.spent)
        attempt = await self._judge(self.judge, answer)
        left = self.steps - len(self.attempts)
        return f"{verdict_words(attempt, self.prompt.version)}\n\nAttempts left: {left}."

    async def _build(self, source: str) -> str:
        assert self.build is not None
        judgement = await self.build(source, self._file_name(len(self.attempts) + 1))
        return build_words(judgement, source, self.prompt.version)

    def _hear(self, piece: AnyPiece) -> None:
        self.recorder.piece(piece, self.player.budget.spent)

    def _give_up(self) -> str:
        if len(self.attempts) >= REFUSALS and all(
            attempt.answer.outcome == "refusal" for attempt in self.attempts[-REFUSALS:]
        ):
            return "refused"
        if len(self.attempts) >= HARNESS_ERRORS and all(
            attempt.report is not None and attempt.report.verdict is Verdict.HARNESS_ERROR
            for attempt in self.attempts[-HARNESS_ERRORS:]
        ):
            return "harness"
        without_gain = len(self.attempts) - self._gained_at
        if self.patience is not None and without_gain >= self.patience:
            return "no gain"
        return ""
