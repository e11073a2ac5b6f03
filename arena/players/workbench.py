"""What models and agent programs do with a kernel: have it judged or built, recorded in the trace, and told in words."""

import re
from collections.abc import Callable

from arena.models.answer import ModelAnswer
from arena.models.budget import Spent
from arena.models.conversation import Finish
from arena.players.attempts import Attempt, best_of, gains
from arena.players.feedback import build_words, fenced_kernel, verdict_words
from arena.players.player import KernelAccess
from arena.players.tools import RUN, ToolArguments, kernel_in, page_text
from arena.players.trace import Answered, Judged, TraceRecorder
from arena.records.run_record import view
from sandbox.protocol.kernel_files import Kernel


class Workbench:
    """The attempts of a player at one task."""

    def __init__(
        self, access: KernelAccess, recorder: TraceRecorder, spent: Callable[[], Spent], stem: str = "attempt"
    ) -> None:
        """spent: returns the amount that the player has spent so far. stem: of the kernels' file names."""
        self.access, self.recorder = access, recorder
        self.attempts: list[Attempt] = []
        """Can be read at any time, also after a failure."""
        self.gained_at = 0
        """The last step that was a gain."""
        self._spent, self._stem = spent, stem
        self._booked = Spent()

    @property
    def best(self) -> Attempt | None:
        """The best attempt so far."""
        return best_of(self.attempts)

    def book(self) -> Spent:
        """Returns the amount spent since the last call."""
        before, self._booked = self._booked, self._spent()
        return self._booked - before

    def answered(self, answer: ModelAnswer, kernel: Kernel, spent: Spent) -> None:
        """Records an answer in the trace."""
        self.recorder.emit(view(Answered, kernel, answer, spent=spent))

    async def attempt(self, answer: ModelAnswer) -> Attempt:
        """Adds an answer to the attempts. Its kernel is judged, if it has one and kernels are judged at once."""
        step = self.recorder.step = len(self.attempts) + 1
        kernel = answer.kernel if answer.outcome == "kernel" else Kernel("")
        self.answered(answer, kernel, answer.spent)
        made = Attempt(step, answer)
        if kernel.source and self.access.judges:
            judgement = await self.access.judge(kernel, self._file_name)
            made = Attempt(step, answer, judgement)
            self.recorder.emit(view(Judged, judgement, gain=gains(made, self.attempts)))
        if gains(made, self.attempts):
            self.gained_at = step
        self.attempts.append(made)
        self.access.attempted(made)
        return made

    async def use(self, name: str, wanted: ToolArguments) -> str:
        """Does the work of one of `kernel_tools`.

        Raises:
            Misused: there is no such page, or no kernel in the arguments.
            ArenaError: the harness failed.
        """
        if name == "kit_docs":
            return page_text(wanted.page)
        kernel = kernel_in(wanted.source)
        return await (self.run if name == RUN else self.build)(kernel)

    async def run(self, kernel: Kernel) -> str:
        """Does the work of the tool `run`."""
        made = await self.attempt(ModelAnswer(fenced_kernel(kernel), Finish("stop"), self.book()))
        return f"{verdict_words(made)}\n\nAttempts left: {self.access.steps - len(self.attempts)}."

    async def build(self, kernel: Kernel) -> str:
        """Does the work of the tool `compile`."""
        return build_words(await self.access.build(kernel, self._file_name), kernel.source)

    def end(self, reason: str) -> None:
        """Records the end in the trace."""
        best = self.best
        self.recorder.ended(reason, best.step if best is not None else None, self._spent())

    @property
    def _file_name(self) -> str:
        return re.sub(r"[^\w.-]+", "-", f"{self._stem}-{len(self.attempts) + 1}.py")
