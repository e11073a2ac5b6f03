"""An agent: a model writes a kernel, the judge runs it, the model reads the verdict and writes the next one."""

import re
from dataclasses import dataclass, field

from arena.errors import ArenaError
from arena.players.attempts import Attempt, best_of
from arena.players.feedback import next_turn
from arena.players.judge import Judge
from arena.players.model_player import ModelPlayer
from arena.players.player import AnyPiece
from arena.players.prompt import Prompt
from arena.players.trace import Recorder
from sandbox.verdict import Verdict

STEPS = 20
"""Where a published agent's gains levelled off."""
PATIENCE = 6
"""Steps without a gain before it is left."""
REFUSALS = 2
"""In a row: a model that declines twice means it."""
HARNESS_ERRORS = 2


@dataclass
class Agent:
    """One model at one problem. `run` once; what it found so far can be read at any time, also after a failure."""

    player: ModelPlayer
    judge: Judge | None
    """None: kernels are written and not run."""
    prompt: Prompt
    recorder: Recorder
    steps: int = STEPS
    patience: int | None = PATIENCE
    """None: never mind gains. Samples are independent of each other when `feedback` is off."""
    feedback: bool = True
    attempts: list[Attempt] = field(default_factory=list, init=False)
    reason: str = field(default="", init=False)

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
        last_gain = 0
        for step in range(1, self.steps + 1):
            if self.player.budget.reached:
                return "budget"
            before = self.best
            attempt = await self._step(step)
            self.attempts.append(attempt)
            if attempt.gains_on(before):
                last_gain = step
            if attempt.answer.outcome == "budget":
                return "budget"
            if self.feedback and (reason := self._give_up(step - last_gain)):
                return reason
        return "steps"

    async def _step(self, step: int) -> Attempt:
        conversation = self.prompt.conversation
        if self.attempts and self.feedback:
            conversation = next_turn(conversation, self.attempts, self.prompt.version)
        self.recorder.ask(step, conversation)
        answer = await self.player.answer(conversation, self._hear)
        source = answer.source if answer.outcome == "kernel" else ""
        self.recorder.answered(answer.outcome, answer.complaint, source, answer.spent)
        if not source or self.judge is None:
            return Attempt(step, answer)
        judgement = await self.judge(source, re.sub(r"[^\w.-]+", "-", f"{self.player.name}-{step}.py"))
        attempt = Attempt(step, answer, judgement)
        self.recorder.judged(judgement.report, judgement.printed, attempt.gains_on(self.best))
        return attempt

    def _hear(self, piece: AnyPiece) -> None:
        self.recorder.piece(piece, self.player.budget.spent)

    def _give_up(self, without_gain: int) -> str:
        if len(self.attempts) >= REFUSALS and all(
            attempt.answer.outcome == "refusal" for attempt in self.attempts[-REFUSALS:]
        ):
            return "refused"
        if len(self.attempts) >= HARNESS_ERRORS and all(
            attempt.report is not None and attempt.report.verdict is Verdict.HARNESS_ERROR
            for attempt in self.attempts[-HARNESS_ERRORS:]
        ):
            return "harness"
        if self.patience is not None and without_gain >= self.patience:
            return "no gain"
        return ""
