"""The loop of an agent: a model writes a kernel, the judge runs it, the model reads the verdict and writes the next one.

A kernel is judged if it is in the model's answer, or if the model passes it to the tool `run`. Both are attempts.
"""

import re
from dataclasses import dataclass, field, replace

from arena.errors import ArenaError
from arena.models.answer import ModelAnswer
from arena.models.budget import Spent
from arena.models.conversation import AnyPiece, Finish, Message, ToolCall, ToolResult
from arena.models.model import ModelClient
from arena.players.attempts import Attempt, best_of, gains
from arena.players.feedback import build_words, fenced_kernel, next_turn, verdict_words
from arena.players.player import KernelAccess
from arena.players.prompt import Prompt
from arena.players.tools import NO_ARGUMENTS, KernelTools
from arena.players.trace import TraceRecorder
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict

STEPS = 20
"""Default number of steps. A published agent made no further gain after these."""
PATIENCE = 6
"""Default number of steps without a gain after which an agent stops."""
REFUSALS = 2
"""Consecutive refusals after which an agent stops."""
HARNESS_ERRORS = 2
CALLS_AS_TEXT = "this model writes tool calls as text: set a tool parser on its server, or tools = false"
LOST_ARGUMENTS = "the provider loses the arguments of tool calls: update its server, or set tools = false"


@dataclass
class Agent:
    """One model at one problem. Call `run` once. `attempts` can be read at any time, also after a failure."""

    client: ModelClient
    access: KernelAccess
    prompt: Prompt
    recorder: TraceRecorder
    patience: int | None = PATIENCE
    """Answers without a gain after which it stops; None: no limit."""
    feedback: bool = True
    """Whether the model gets its verdicts. If not, its answers are independent of each other."""
    attempts: list[Attempt] = field(default_factory=list, init=False)
    reason: str = field(default="", init=False)
    _gained_at: int = field(default=0, init=False)
    _booked: Spent = field(default=Spent(), init=False)
    _warned: set[str] = field(default_factory=set, init=False)

    async def run(self) -> Attempt | None:
        """Runs the loop until a limit is reached. Returns the best attempt that was judged.

        Raises:
            ArenaError: the provider or the harness failed. The trace has the error and everything before it.
        """
        self.reason = "cancelled"
        try:
            self.reason = await self._work()
        except ArenaError as error:
            self.reason = f"failed: {error.message}"
            raise
        finally:
            best = self.best
            self.recorder.ended(self.reason, best.step if best is not None else None, self.client.budget.spent)
        return self.best

    @property
    def best(self) -> Attempt | None:
        """The best attempt so far."""
        return best_of(self.attempts)

    async def _work(self) -> str:
        while len(self.attempts) < self.access.steps:
            if self.client.budget.reached:
                return "budget"
            answer = await self._step()
            if answer.outcome == "budget":
                return "budget"
            if self.feedback and (reason := self._give_up()):
                return reason
        return "steps"

    async def _step(self) -> ModelAnswer:
        """Gets one answer of the model and runs its tool calls. Adds at least one attempt unless it raises."""
        conversation = self.prompt.conversation
        if self.attempts and self.feedback:
            conversation = next_turn(conversation, self.attempts)
        tools = self._tools()
        if tools is not None:
            conversation = conversation.offering(*tools.tools)
        began = len(self.attempts)
        self._booked = self.client.budget.spent
        self.recorder.ask(began + 1, conversation)
        while True:
            answer = await self.client.answer(conversation, self._hear)
            if tools is None or not answer.calls or answer.finish.reason in ("budget", "refusal"):
                break
            if tools.left <= 0:  # the last results stated that no calls are left
                break
            results = []
            for call in answer.calls:
                if len(self.attempts) >= self.access.steps:
                    return answer
                results.append(await self._call(tools, call))
            if len(self.attempts) >= self.access.steps:
                return answer
            said = Message("assistant", answer.text, answer.calls, kept=answer.kept)
            conversation = conversation.then(said, Message("user", "", results=tuple(results)))
        await self._take(answer, self.attempts[began:])
        return answer

    async def _take(self, answer: ModelAnswer, ran: list[Attempt]) -> None:
        """Judges the answer's kernel, unless a tool call has judged it already. `ran`: the attempts of those calls."""
        kernel = answer.kernel if answer.outcome == "kernel" else Kernel("")
        if answer.calls_as_text:
            self._warn_once(CALLS_AS_TEXT)
        if ran and (not kernel.source or any(attempt.answer.kernel == kernel for attempt in ran)):
            self.recorder.answered(answer.outcome, answer.reason, Kernel(""), self._spent())
            return
        self.recorder.step = len(self.attempts) + 1
        answer = replace(answer, spent=self._spent())
        self.recorder.answered(answer.outcome, answer.reason, kernel, answer.spent)
        if kernel.source and self.access.judges:
            await self._judge(answer)
        else:
            self._keep(Attempt(self.recorder.step, answer))

    async def _judge(self, answer: ModelAnswer) -> Attempt:
        step = len(self.attempts) + 1
        judgement = await self.access.judge(answer.source, self._file_name(step), answer.files)
        attempt = Attempt(step, answer, judgement)
        self.recorder.judged(judgement.report, judgement.printed, gains(attempt, self.attempts))
        self._keep(attempt)
        return attempt

    def _keep(self, attempt: Attempt) -> None:
        if gains(attempt, self.attempts):
            self._gained_at = attempt.step
        self.attempts.append(attempt)
        self.access.attempted(attempt)

    def _file_name(self, step: int) -> str:
        return re.sub(r"[^\w.-]+", "-", f"{self.client.name}-{step}.py")

    def _spent(self) -> Spent:
        """Returns the amount spent since the last kernel."""
        before, self._booked = self._booked, self.client.budget.spent
        return self._booked - before

    # --- tools -----------------------------------------------------------------------------------------------

    def _tools(self) -> KernelTools | None:
        """Creates the tools for one step. Independent samples get none: results would leak into the next sample."""
        if not (self.access.judges and self.feedback) or not self.client.takes_tools:
            return None
        return KernelTools(self._run, self._build)

    async def _call(self, tools: KernelTools, call: ToolCall) -> ToolResult:
        self.recorder.called(call)
        if call.arguments.strip() in NO_ARGUMENTS:
            self._warn_once(LOST_ARGUMENTS)
        result = await tools.call(call)
        self.recorder.returned(result)
        return result

    async def _run(self, kernel: Kernel) -> str:
        self.recorder.step = len(self.attempts) + 1
        answer = ModelAnswer(fenced_kernel(kernel), Finish("stop"), self._spent())
        self.recorder.answered(answer.outcome, answer.reason, answer.kernel, answer.spent)
        attempt = await self._judge(answer)
        left = self.access.steps - len(self.attempts)
        return f"{verdict_words(attempt)}\n\nAttempts left: {left}."

    async def _build(self, kernel: Kernel) -> str:
        judgement = await self.access.build(kernel.source, self._file_name(len(self.attempts) + 1), kernel.files)
        return build_words(judgement, kernel.source)

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self.access.warn(f"{self.client.name}: {text}")

    def _hear(self, piece: AnyPiece) -> None:
        self.recorder.piece(piece, self.client.budget.spent)

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
