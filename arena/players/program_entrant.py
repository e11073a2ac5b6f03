"""An agent program at one task: in sweeps an author, in duels a side."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from arena.errors import PlayerFailed
from arena.models.budget import Budget, Spent
from arena.models.conversation import Text
from arena.models.templates import TEMPLATES, fill_template
from arena.paths import Paths
from arena.players.attempts import Attempt
from arena.players.judge import JudgeKernel
from arena.players.program.jailed import run_program
from arena.players.program.program import AgentProgram
from arena.players.program.task_tools import TaskTools
from arena.players.program.watch import ProgramEnd, Watch
from arena.players.prompts.prompt import SHOTS, build_prompt
from arena.players.trace import Counted, Listener, TraceHeader, TraceRecorder, new_trace_id
from arena.runs.results import one_line
from problems.catalogue import Catalogue
from problems.specification import Problem
from sandbox.protocol.events import Setting

BUDGET = "budget"
SPENT_S = 10.0
"""A program whose money is spent may work on without its model for so long, and until its last call of a tool is answered."""


@dataclass(frozen=True)
class Played:
    """One attempt of a program at a task."""

    trace_id: str
    attempts: list[Attempt]
    best: Attempt | None
    reason: str
    """ "done", "time", "budget", "limit of ...: ..." where a cap of its jail was passed, or "failed: ..."."""
    spent: Spent


@dataclass(frozen=True)
class ProgramSetup:
    """What a program plays with."""

    catalogue: Catalogue
    paths: Paths
    judge: JudgeKernel
    build: JudgeKernel
    steps: int
    """Kernels that it may have judged."""
    budget: Budget | None = None
    budget_usd: float | None = None
    shots: int = SHOTS
    listeners: tuple[Listener, ...] = ()
    complain: Callable[[OSError], None] = lambda error: None


async def play(program: AgentProgram, problem: Problem, setting: Setting, place: ProgramSetup) -> Played:
    """Starts the program in its jail and waits for its end. Cancelling it ends the program.

    Raises:
        ArenaError: the harness failed, there is no jail for it, or it cannot be started.
    """
    prompt = await asyncio.to_thread(
        build_prompt, problem, setting, place.catalogue, place.paths, place.shots
    )
    rules = fill_template(TEMPLATES, "program", steps=place.steps, minutes=f"{program.seconds / 60:g}")
    task = "\n\n".join([prompt.conversation.system, prompt.conversation.messages[0].content, rules])
    header = TraceHeader(
        trace_id=new_trace_id(),
        created=time.time(),
        problem_id=problem.id,
        slug=problem.slug,
        category=problem.category,
        player=f"agent:{program.name}",
        provider="program",
        model=program.model_name or program.name,
        prompt_version=prompt.version,
        prompt_sha256=hashlib.sha256(task.encode()).hexdigest(),
        shots=prompt.shots,
        setting=setting,
        steps=place.steps,
        budget_usd=place.budget_usd,
    )
    recorder = TraceRecorder(header, place.paths, place.complain, list(place.listeners))
    budget = place.budget

    def spent() -> Spent:
        return budget.spent if budget is not None else Spent()

    told = Spent()

    def tell_spent() -> None:
        nonlocal told
        if spent() != told:
            told = spent()
            recorder.emit(Counted(spent=told))

    tools = TaskTools(problem, task, place.judge, place.build, recorder, place.steps, spent)
    left_alone_since = time.monotonic()

    def enough() -> str:
        nonlocal left_alone_since
        tell_spent()
        if budget is None or not budget.reached or tools.busy:
            left_alone_since = time.monotonic()
        return BUDGET if time.monotonic() - left_alone_since > SPENT_S else ""

    watch = Watch(program.seconds, lambda text: recorder.piece(Text(text), spent()), enough)
    recorder.ask(1, prompt.conversation.offering(*tools.tools))
    reason = "cancelled"
    try:
        ended = await _unless_broken(tools, run_program(program, task, tools, budget, place.paths, watch))
        if ended.stopped:
            reason = ended.stopped
        elif budget is not None and budget.reached:
            reason = BUDGET
        elif ended.code:
            last = one_line(ended.last_words[-300:])
            reason = f"failed: exit status {ended.code}" + (f": {last}" if last else "")
        else:
            reason = "done"
    except Exception as error:
        reason = f"failed: {error}"
        raise
    finally:
        best = tools.best
        tell_spent()
        recorder.ended(reason, best.step if best is not None else None, spent())
    if reason.startswith("failed") and best is None:
        raise PlayerFailed(f"agent:{program.name} {reason}", "its trace has what it wrote")
    return Played(header.trace_id, tools.attempts, best, reason, spent())


async def _unless_broken(tools: TaskTools, work: Coroutine[Any, Any, ProgramEnd]) -> ProgramEnd:
    """Waits for the program's end, or ends it when the harness fails: there is nothing left for it to do."""
    running = asyncio.create_task(work)
    tools.on_broken = running.cancel
    try:
        return await running
    except asyncio.CancelledError:
        if tools.broken is not None:
            raise tools.broken from None
        raise
