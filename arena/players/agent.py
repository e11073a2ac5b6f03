"""The loop of an agent: a model writes a kernel, the judge runs it, the model reads the verdict and writes the next one.

A kernel is judged if it is in the model's answer, or if the model passes it to the tool `run`. Both are attempts.
"""

from collections.abc import Sequence
from dataclasses import replace

from arena.errors import ArenaError
from arena.models.answer import ModelAnswer
from arena.models.conversation import Message, Tool, ToolCall, ToolResult, read_template
from arena.models.model import ModelClient
from arena.players.attempts import Attempt
from arena.players.feedback import next_turn
from arena.players.player import KernelAccess
from arena.players.prompt import Prompt
from arena.players.tools import CALLS, NO_ARGUMENTS, Misused, kernel_tools, read_call, result
from arena.players.trace import Called, Returned, TraceRecorder
from arena.players.workbench import Workbench
from arena.records.run_record import view
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


class Agent(Workbench):
    """One model at one problem. Call `play` once."""

    def __init__(
        self,
        client: ModelClient,
        access: KernelAccess,
        prompt: Prompt,
        recorder: TraceRecorder,
        patience: int | None = PATIENCE,
        feedback: bool = True,
    ) -> None:
        """patience: answers without a gain after which it stops; None: no limit.

        feedback: whether the model gets its verdicts. If not, its answers are independent of each other.
        """
        super().__init__(access, recorder, lambda: client.budget.spent, client.name)
        self.client, self.prompt = client, prompt
        self.patience, self.feedback = patience, feedback
        self.reason = ""
        self._warned: set[str] = set()

    async def play(self) -> Attempt | None:
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
            self.end(self.reason)
        return self.best

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
        tools, left = self._tools(), CALLS
        conversation = conversation.offering(*tools)
        began = len(self.attempts)
        self.book()
        self.recorder.ask(began + 1, conversation)
        while True:
            answer = await self.client.answer(
                conversation, lambda piece: self.recorder.piece(piece, self.client.budget.spent)
            )
            if not tools or not answer.calls or answer.finish.reason in ("budget", "refusal"):
                break
            if left <= 0:  # the last results stated that no calls are left
                break
            results = []
            for call in answer.calls:
                if len(self.attempts) >= self.access.steps:
                    return answer
                results.append(await self._call(tools, call, left))
                left -= 1
            if len(self.attempts) >= self.access.steps:
                return answer
            said = Message("assistant", answer.text, answer.calls, kept=answer.kept)
            conversation = conversation.then(said, Message("user", "", results=tuple(results)))
        await self._take(answer, self.attempts[began:])
        return answer

    async def _take(self, answer: ModelAnswer, ran: list[Attempt]) -> None:
        """Judges the answer's kernel, unless a tool call has judged it already. `ran`: the attempts of those calls."""
        if answer.calls_as_text:
            self._warn_once(CALLS_AS_TEXT)
        known = [attempt.answer.kernel for attempt in ran]
        if ran and (answer.outcome != "kernel" or answer.kernel in known):
            self.answered(answer, Kernel(""), self.book())
        else:
            await self.attempt(replace(answer, spent=self.book()))

    # --- tools -----------------------------------------------------------------------------------------------

    def _tools(self) -> tuple[Tool, ...]:
        """Returns the tools for one step. Independent samples get none: results would leak into the next sample."""
        return kernel_tools() if self.access.judges and self.feedback and self.client.takes_tools else ()

    async def _call(self, tools: Sequence[Tool], call: ToolCall, left: int) -> ToolResult:
        """left: calls that are left until the next answer."""
        self.recorder.emit(Called(tool=call.name, arguments=call.arguments))
        if call.arguments.strip() in NO_ARGUMENTS:
            self._warn_once(LOST_ARGUMENTS)
        error = left <= 0
        try:
            text = read_template("no_calls") if error else await self.use(call.name, read_call(call, tools))
        except Misused as misuse:
            text, error = f"{call.name or 'the call'}: {misuse}", True
        told = result(call.name, text, error, call.call_id)
        self.recorder.emit(view(Returned, told, tool=told.name))
        return told

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self.access.warn(f"{self.client.name}: {text}")

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
        without_gain = len(self.attempts) - self.gained_at
        if self.patience is not None and without_gain >= self.patience:
            return "no gain"
        return ""
