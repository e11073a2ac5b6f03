"""The player of an agent program, which runs in its own jail, and the tools that the program may call."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from arena.errors import ArenaError, PlayerFailed
from arena.models.budget import Budget, Spent, price_words
from arena.models.conversation import Text, Tool, ToolResult, fill_template
from arena.players import tools
from arena.players.feedback import attempt_row
from arena.players.player import KernelAccess, NoAnswer, Player, PlayerName, PlayerSetup, Submission, Task, trace_header
from arena.players.program import bridge
from arena.players.program.jailed import require_ready, run_program
from arena.players.program.program import AgentProgram
from arena.players.program.watch import LIMIT, ProgramEnd, Watch, how_it_ended
from arena.players.trace import Called, Counted, Returned, TraceRecorder
from arena.players.workbench import Workbench
from arena.records.run_record import view
from arena.workspace.named_kernels import template_names
from problems.specification import Problem

MOST_CALLS = 2000
RECORDED_CHARACTERS = 64 << 10
"""Of a call's arguments, in the trace. The whole kernel of `run` is in the attempt."""


class TaskTools(Workbench):
    """A `ToolSet` for one attempt at one task. It gives no access to other players, problems or runs."""

    def __init__(
        self, problem: Problem, task: str, access: KernelAccess, recorder: TraceRecorder, spent: Callable[[], Spent]
    ) -> None:
        """task: the prompt. spent: returns the amount that the player has spent so far."""
        super().__init__(access, recorder, spent)
        self._problem, self._task = problem, task
        self._turn = asyncio.Lock()
        self._calls = 0
        self.broken: ArenaError | None = None
        """The error of the harness, after which results do not count; None if it has not failed."""
        self.on_broken: Callable[[], object] = lambda: None

    @property
    def busy(self) -> bool:
        """Whether a call is in progress."""
        return self._turn.locked()

    @property
    def tools(self) -> tuple[Tool, ...]:
        compiles, runs, reads = tools.kernel_tools()
        return (
            tools.tool("show", "The task: problem, baseline, machine, kit and rules.", {}, {}),
            tools.tool(
                "new", "The text of a starter kernel.", {}, {"template": tools.TEXT | {"enum": template_names()}}
            ),
            compiles,
            runs,
            tools.tool("history", "Your attempts so far.", {}, {}),
            reads,
        )

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        async with self._turn:
            self._calls += 1
            if self._calls > MOST_CALLS:  # not recorded, because the trace could fill the disk
                return tools.result(name, f"No calls are left: you made {MOST_CALLS}.", error=True)
            self.recorder.step = len(self.attempts) + 1
            written = msgspec.json.encode(arguments).decode()
            self.recorder.emit(Called(tool=name[:60], arguments=written[:RECORDED_CHARACTERS]))
            try:
                answer = tools.result(name, await self._answer(name, arguments))
            except tools.Misused as error:
                answer = tools.result(name, f"{name[:60]}: {error}", error=True)
            except ArenaError as error:
                self.broken = error
                self.on_broken()
                answer = tools.result(name, f"{name}: {error.message}", error=True)
            self.recorder.emit(view(Returned, answer, tool=answer.name))
            return answer

    async def _answer(self, name: str, arguments: Mapping[str, Any]) -> str:
        wanted = tools.arguments_of(tools.RUN if name == bridge.LEFT else name, arguments, self.tools)
        match name:
            case "show":
                return self._task
            case "new":
                return tools.starter_text(self._problem, wanted.template)
            case "history":
                return "\n".join(map(attempt_row, self.attempts)) or "No attempts yet."
            case bridge.LEFT if tools.kernel_in(wanted.source) in [each.answer.kernel for each in self.attempts]:
                return "Already submitted."
            case bridge.LEFT | tools.RUN if len(self.attempts) >= self.access.steps:
                return "No attempts are left. The best of your kernels is the one that counts."
        return await self.use(tools.RUN if name == bridge.LEFT else name, wanted)


BUDGET = "budget"
SPENT_S = 10.0
"""Seconds that a program may continue after its budget is spent. Each tool call restarts the count."""


class ProgramPlayer(Player):
    """Submits the best of the kernels that a program passed to the tool `run`."""

    def __init__(self, name: PlayerName, program: AgentProgram, setup: PlayerSetup) -> None:
        """
        Raises:
            UsageError: its model has no key, or dollars are limited and it has no prices.
            MachineError: there is no jail for it, or no MCP SDK.
        """
        self.name, self.model = name, program.model
        self._program, self._setup = program, setup
        require_ready(program)
        jail = f"in a jail of its own, {program.seconds / 60:g} min"
        if program.model is None:
            self.facts = f"{jail} · reaches no model, costs nothing"
        else:
            setup.pool.close(setup.pool.open(program.model))
            self.facts = f"{jail} · {program.model.model} · {price_words(program.model)}"

    async def play(self, task: Task, access: KernelAccess) -> Submission:
        budget = self._setup.pool.open(self.model) if self.model is not None else None
        submission: Submission | None = None
        failed, spent = PlayerFailed("it did not play"), Spent()
        try:
            submission = await self._attempt(task, access, budget)
        except PlayerFailed as error:
            failed = error
        finally:
            if budget is not None:
                spent = self._setup.pool.close(budget)
        if submission is None:
            raise NoAnswer(failed, spent)
        return replace(submission, spent=spent)

    async def _attempt(self, task: Task, access: KernelAccess, budget: Budget | None) -> Submission:
        """Runs the program in its jail until it ends, and returns its best kernel."""
        setup, program = self._setup, self._program
        prompt = await asyncio.to_thread(setup.prompt, task)
        rules = fill_template("program", steps=access.steps, minutes=f"{program.seconds / 60:g}")
        text = "\n\n".join([prompt.conversation.system, prompt.conversation.messages[0].content, rules])
        header = trace_header(
            task, prompt, access.steps, setup.pool.usd,
            player=str(self.name),
            provider="program",
            model=program.model_name or program.name,
            prompt_sha256=hashlib.sha256(text.encode()).hexdigest(),
        )  # fmt: skip
        recorder = access.record(header, setup.paths)
        meter = _Meter(budget, recorder)
        tools = TaskTools(task.problem, text, access, recorder, lambda: meter.spent)
        meter.busy = lambda: tools.busy
        watch = Watch(program.seconds, lambda said: recorder.piece(Text(said), meter.spent), meter.enough)
        recorder.ask(1, prompt.conversation.offering(*tools.tools))
        reason = "cancelled"
        try:
            work = run_program(program, text, tools, budget, setup.paths, watch)
            reason = _why(await _unless_broken(tools, work), budget)
        except Exception as error:
            reason = f"failed: {error}"
            raise
        finally:
            meter.tell()
            tools.end(reason)
        kernel = tools.best.kernel if tools.best is not None else None
        if kernel is None and reason.startswith("failed"):
            raise PlayerFailed(f"{self.name} {reason}", "its trace has what it wrote")
        why = "" if kernel is not None else reason if reason == BUDGET or reason.startswith(LIMIT) else "empty"
        return Submission(kernel, reason=why, trace_id=header.trace_id, ended=reason)


class _Meter:
    """Records the spending of a program, and limits its time after the budget is spent."""

    def __init__(self, budget: Budget | None, recorder: TraceRecorder) -> None:
        self._budget, self._recorder = budget, recorder
        self._told = Spent()
        self._idle_since = time.monotonic()
        self.busy: Callable[[], bool] = lambda: False
        """Whether a tool call is in progress."""

    @property
    def spent(self) -> Spent:
        return self._budget.spent if self._budget is not None else Spent()

    def tell(self) -> None:
        if self.spent != self._told:
            self._told = self.spent
            self._recorder.emit(Counted(spent=self._told))

    def enough(self) -> str:
        """Returns BUDGET once the program has continued for `SPENT_S` after its budget was spent; else empty."""
        self.tell()
        if self._budget is None or not self._budget.reached or self.busy():
            self._idle_since = time.monotonic()
        return BUDGET if time.monotonic() - self._idle_since > SPENT_S else ""


def _why(ended: ProgramEnd, budget: Budget | None) -> str:
    """Returns why a program ended: see `Submission.ended`."""
    if ended.stopped:
        return ended.stopped
    if budget is not None and budget.reached:
        return BUDGET
    return f"failed: {how_it_ended(ended.code, ended.errors or ended.last_words)}" if ended.code else "done"


async def _unless_broken(tools: TaskTools, work: Coroutine[Any, Any, ProgramEnd]) -> ProgramEnd:
    """Waits until the program ends. Ends it and raises if the harness fails, because no kernel can be judged then."""
    running = asyncio.create_task(work)
    tools.on_broken = running.cancel
    try:
        return await running
    except asyncio.CancelledError:
        if tools.broken is not None:
            raise tools.broken from None
        raise
