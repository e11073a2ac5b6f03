"""The arena's tools for a player with one task. Problem and setting are fixed; the best of its `run` calls counts."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from arena.errors import ArenaError
from arena.models.answer import ModelAnswer
from arena.models.budget import Spent
from arena.models.conversation import Finish, Tool, ToolCall, ToolResult, read_template
from arena.players import tools
from arena.players.attempts import Attempt, best_of, gains
from arena.players.player import KernelAccess
from arena.players.program import bridge
from arena.players.prompts.feedback import build_words, fenced, fenced_kernel, verdict_words
from arena.players.trace import TraceRecorder
from arena.words.headline import WHERE, outcome_words
from arena.workspace.named_kernels import BASELINE, starter, template_names
from problems.specification import Problem
from sandbox.protocol.kernel_files import Kernel

MOST_CALLS = 2000
RECORDED_CHARACTERS = 64 << 10
"""Of a call's arguments, in the trace. The whole kernel of `run` is in the attempt."""


class _Nothing(msgspec.Struct):
    pass


class _Template(msgspec.Struct):
    template: str = BASELINE


class TaskTools:
    """A `ToolSet` for one attempt at one task. It gives no access to other players, problems or runs."""

    def __init__(
        self, problem: Problem, task: str, access: KernelAccess, recorder: TraceRecorder, spent: Callable[[], Spent]
    ) -> None:
        """task: the prompt. spent: returns the amount that the player has spent so far."""
        self._problem, self._task = problem, task
        self._access, self._recorder, self._spent = access, recorder, spent
        self._booked = Spent()
        self._turn = asyncio.Lock()
        self._calls = 0
        self.attempts: list[Attempt] = []
        self.broken: ArenaError | None = None
        """The error of the harness, after which results do not count; None if it has not failed."""
        self.on_broken: Callable[[], object] = lambda: None

    @property
    def busy(self) -> bool:
        """Whether a call is in progress."""
        return self._turn.locked()

    @property
    def best(self) -> Attempt | None:
        """The best attempt so far."""
        return best_of(self.attempts)

    @property
    def tools(self) -> tuple[Tool, ...]:
        kernel = {"source": tools.TEXT | {"description": tools.KERNEL_WORDS}}
        return (
            tools.tool("show", "The task: problem, baseline, machine, kit and rules.", {}, {}),
            tools.tool(
                "new", "The text of a starter kernel.", {}, {"template": tools.TEXT | {"enum": template_names()}}
            ),
            tools.tool("compile", read_template("tool_compile"), kernel, {}),
            tools.tool(tools.RUN, read_template("tool_run"), kernel, {}),
            tools.tool("history", "Your attempts so far.", {}, {}),
            tools.tool(
                "kit_docs", read_template("tool_kit_docs"), {"page": tools.TEXT | {"enum": list(tools.PAGES)}}, {}
            ),
        )

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        async with self._turn:
            self._calls += 1
            if self._calls > MOST_CALLS:  # not recorded, because the trace could fill the disk
                return tools.result(name, f"No calls are left: you made {MOST_CALLS}.", error=True)
            self._recorder.step = len(self.attempts) + 1
            written = msgspec.json.encode(arguments).decode()
            self._recorder.called(ToolCall(name[:60], written[:RECORDED_CHARACTERS]))
            try:
                answer = await self._answer(name, arguments)
            except tools.Misused as error:
                answer = tools.result(name, f"{name[:60]}: {error}", error=True)
            except ArenaError as error:
                self.broken = error
                self.on_broken()
                answer = tools.result(name, f"{name}: {error.message}", error=True)
            self._recorder.returned(answer)
            return answer

    async def _answer(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        match name:
            case "show":
                tools.arguments_of(arguments, _Nothing)
                return tools.result(name, self._task)
            case "new":
                template = tools.arguments_of(arguments, _Template).template
                if template not in template_names():
                    raise tools.Misused(
                        f"there is no template {template[:60]!r}; choose from {', '.join(template_names())}"
                    )
                return tools.result(name, fenced(starter(self._problem, template), "python"))
            case "compile" | "run":
                kernel = tools.kernel_in(tools.arguments_of(arguments, tools.KernelArguments).source)
                return tools.result(name, await (self._run if name == tools.RUN else self._compile)(kernel))
            case bridge.LEFT:
                kernel = tools.kernel_in(tools.arguments_of(arguments, tools.KernelArguments).source)
                if any(attempt.answer.kernel == kernel for attempt in self.attempts):
                    return tools.result(name, "Already submitted.")
                return tools.result(name, await self._run(kernel))
            case "history":
                tools.arguments_of(arguments, _Nothing)
                return tools.result(name, "\n".join(map(_row, self.attempts)) or "No attempts yet.")
            case "kit_docs":
                return tools.result(name, tools.page_text(tools.arguments_of(arguments, tools.PageArguments).page))
        raise tools.Misused(f"there is no such tool; choose from {', '.join(offered.name for offered in self.tools)}")

    async def _run(self, kernel: Kernel) -> str:
        step = len(self.attempts) + 1
        if step > self._access.steps:
            return "No attempts are left. The best of your kernels is the one that counts."
        before, self._booked = self._booked, self._spent()
        answer = ModelAnswer(fenced_kernel(kernel), Finish("stop"), self._booked - before)
        self._recorder.answered(answer.outcome, answer.reason, answer.kernel, answer.spent)
        judgement = await self._access.judge(answer.source, f"attempt-{step}.py", answer.files)
        attempt = Attempt(step, answer, judgement)
        self._recorder.judged(judgement.report, judgement.printed, gains(attempt, self.attempts))
        self.attempts.append(attempt)
        self._access.attempted(attempt)
        return f"{verdict_words(attempt)}\n\nAttempts left: {self._access.steps - step}."

    async def _compile(self, kernel: Kernel) -> str:
        judgement = await self._access.build(kernel.source, f"attempt-{len(self.attempts) + 1}.py", kernel.files)
        return build_words(judgement, kernel.source)


def _row(attempt: Attempt) -> str:
    report = attempt.report
    assert report is not None
    speed = ""
    if attempt.speedup is not None:
        speed = f", {attempt.speedup:.2f}x {outcome_words(report.outcome)} {WHERE.get(report.clock, '')}".rstrip()
    return f"{attempt.step}: {report.verdict}{speed}"
