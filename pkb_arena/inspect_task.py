"""The arena in Inspect: `inspect eval pkb_arena/pkb --model NAME -T problems=category:collective`."""

from collections.abc import Sequence

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.hooks import Hooks, RunEnd, hooks
from inspect_ai.model import ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, mean, metric, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolDef, ToolError
from inspect_ai.util import Store

from arena.errors import ArenaError, UsageError
from arena.models.answer import ModelAnswer
from arena.models.budget import Spent
from arena.models.conversation import Finish, read_template
from arena.players import tools
from arena.players.attempts import Attempt
from pkb_arena.evaluation import JUDGE, NUMBERS, Terms, numbers, report_of, rows, words
from sandbox.protocol.kernel_files import Kernel

BEST, LEFT, RAN = "pkb:best", "pkb:left", "pkb:ran"
_FINISH = {"max_tokens": "length", "model_length": "length", "content_filter": "refusal"}
"""`Finish.reason` by Inspect's stop reason, where it is not "stop"."""


@task
def pkb(
    problems: str | int | list[str | int] = "all",
    category: str = "",
    problem_class: str = "",
    preset: str | None = None,
    world: int | None = None,
    device: str | None = None,
    dtype: str | None = None,
    rounds: int | None = None,
    budget_s: float | None = None,
    shots: int = 1,
    agent: bool = False,
    steps: int = 3,
    unsafe: bool = False,
) -> Task:
    """Writes kernels for the problems of ParallelKernelBench; the arena judges them on this machine.

    problems, category, problem_class: which problems; each narrows the others. agent: the model may compile and run up to
    `steps` kernels, and the best one counts; else its one answer is judged. Other parameters are those of `pkb-arena run`.
    """
    terms = Terms(
        problems=",".join(map(str, problems if isinstance(problems, list) else [problems])),
        preset=preset,
        world=world,
        device=device,
        dtype=dtype,
        rounds=rounds,
        budget_s=budget_s,
        shots=shots,
        unsafe=unsafe,
    )
    samples = [
        Sample(
            id=row.problem.stem,
            input=[ChatMessageSystem(content=row.system), ChatMessageUser(content=row.user)],
            target=row.problem.stem,
            metadata=row.facts,
        )
        for row in rows(terms)
        if category in ("", row.problem.category) and problem_class in ("", row.problem.class_)
    ]
    if not samples:
        raise UsageError(f"no problem is in category {category!r} and class {problem_class!r}", "see `pkb-arena list`")
    return Task(
        dataset=MemoryDataset(samples, name="ParallelKernelBench"),
        solver=with_tools(terms, steps) if agent else one_answer(),
        scorer=verdict(terms),
    )


@solver
def one_answer() -> Solver:
    """One answer without tools."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        return await generate(state, tool_calls="none")

    return solve


@solver
def with_tools(terms: Terms, steps: int) -> Solver:
    """The model calls compile, run and kit_docs until it calls none. `run` judges, at most `steps` times."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.store.set(LEFT, steps)
        state.tools = _tools(terms, state.metadata["problem"], _player(state), state.store)
        return await generate(state, tool_calls="loop")

    return solve


def _tools(terms: Terms, problem: str, player: str, kept: Store) -> list[Tool]:
    async def judged(source: str, timed: bool) -> str:
        try:
            kernel = tools.kernel_in(source)
            attempt = await JUDGE.judge(terms, problem, kernel, player, timed=timed)
        except tools.Misused as error:
            raise ToolError(str(error)) from None
        if timed:
            _keep(kept, attempt)
        return words(attempt, timed=timed)

    async def compile_kernel(source: str) -> str:
        return await judged(source, timed=False)

    async def run_kernel(source: str) -> str:
        left = int(kept.get(LEFT))
        if left <= 0:
            raise ToolError("No attempts are left. The best of your kernels is the one that counts.")
        kept.set(LEFT, left - 1)
        return f"{await judged(source, timed=True)}\n\nAttempts left: {left - 1}."

    async def kit_docs(page: str) -> str:
        try:
            return tools.page_text(page)
        except tools.Misused as error:
            raise ToolError(str(error)) from None

    pages = f"One of {', '.join(tools.PAGES)}."
    offered = (
        ("compile", compile_kernel, {"source": tools.KERNEL_WORDS}),
        (tools.RUN, run_kernel, {"source": tools.KERNEL_WORDS}),
        ("kit_docs", kit_docs, {"page": pages}),
    )
    return [
        ToolDef(call, name=name, description=read_template(f"tool_{name}"), parameters=parameters).as_tool()
        for name, call, parameters in offered
    ]


def _keep(kept: Store, attempt: Attempt) -> None:
    """Keeps the better one of this kernel and the best one so far."""
    found, best = numbers(attempt), kept.get(BEST)
    kept.set(RAN, [*kept.get(RAN, []), attempt.kernel.source])
    rank = (found["correct"], found["reward"], found["speedup"])
    if best is None or rank > tuple(best["numbers"][name] for name in ("correct", "reward", "speedup")):
        kept.set(BEST, {"numbers": found, "report": dict(report_of(attempt)), "source": attempt.kernel.source})


@metric
def measured_mean() -> Metric:
    """The mean of the samples with a value: a wrong kernel has no speedup."""

    def value(scores: list[SampleScore]) -> float:
        found = [number for number in (score.score.as_float() for score in scores) if number > 0]
        return sum(found) / len(found) if found else 0.0

    return value


_METRICS: dict[str, Sequence[Metric]] = {
    name: [measured_mean()] if name in ("speedup", "share_of_bound") else [mean(), stderr()] for name in NUMBERS
}


@scorer(metrics=_METRICS)
def verdict(terms: Terms) -> Scorer:
    """The arena's verdict on the best kernel. One in the last answer is judged unless it was run, as a sweep's agent does."""

    async def score(state: TaskState, target: Target) -> Score:
        kept = state.store
        answer = ModelAnswer(state.output.completion, Finish(_FINISH.get(state.output.stop_reason, "stop")), Spent())
        if answer.outcome == "kernel" and kept.get(LEFT, 1) > 0 and answer.source not in kept.get(RAN, []):
            await _judged(terms, state, answer.kernel)
        if (best := kept.get(BEST)) is None:
            return Score(value=numbers(None), answer="", explanation=answer.reason)
        report = best["report"]
        explanation = f"{report['verdict']} {report['outcome']} {report['detail']}".strip()
        return Score(value=best["numbers"], answer=best["source"], explanation=explanation, metadata=report)

    return score


async def _judged(terms: Terms, state: TaskState, kernel: Kernel) -> None:
    try:
        attempt = await JUDGE.judge(terms, state.metadata["problem"], kernel, _player(state))
    except ArenaError as error:
        raise RuntimeError(error.one_line) from error  # the sample has an error and no score
    _keep(state.store, attempt)


def _player(state: TaskState) -> str:
    return f"model:{state.model}"


@hooks(name="pkb_arena_worlds", description="Ends the arena's worlds with the run.")
class EndOfWorlds(Hooks):
    """Ends the worlds when a run of Inspect has ended."""

    async def on_run_end(self, data: RunEnd) -> None:
        await JUDGE.close()
