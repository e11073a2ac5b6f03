"""The arena in verifiers: `vf-eval pkb-arena --env.taskset.problems category:collective`.

The model answers with a kernel, reads the verdict, and answers again. The reward is that of its best kernel.
"""

from collections.abc import Iterator
from dataclasses import replace

import verifiers.v1 as vf

from arena.models.answer import ModelAnswer
from arena.models.budget import Spent
from arena.models.conversation import Conversation, Finish
from arena.players.attempts import Attempt, best_of
from arena.players.feedback import next_turn
from pkb_arena.evaluation import JUDGE, Terms, numbers, rows


class KernelTasksetConfig(vf.TasksetConfig):
    """Which problems, and in which setting. None: as for `pkb-arena run`."""

    problems: str = "all"
    """As `sweep --problems`: "category:collective", "class:B", "1-8,13"."""
    preset: str | None = None
    world: int | None = None
    device: str | None = None
    dtype: str | None = None
    rounds: int | None = None
    budget_s: float | None = None
    shots: int = 1
    unsafe: bool = False


class KernelData(vf.TaskData):
    """A problem's prompt, with what its kernels are judged by."""

    problem: str
    category: str
    problem_class: str
    terms: dict[str, str | int | float | bool | None]
    """Fields of `pkb_arena.evaluation.Terms`."""


class KernelTask(vf.Task[KernelData, vf.State, vf.TaskConfig]):
    """One problem."""

    @property
    def key(self) -> str:
        return str(self.data.problem)


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):
    """The problems, with the prompts that a sweep would send."""

    def load(self) -> Iterator[KernelTask]:
        names = [name for name in KernelTasksetConfig.model_fields if name in Terms.__dataclass_fields__]
        terms = {name: getattr(self.config, name) for name in names}
        for row in rows(Terms(**terms)):
            yield KernelTask(
                KernelData(
                    id=row.problem.stem,
                    name=row.problem.title,
                    prompt=row.user,
                    system_prompt=row.system,
                    problem=row.problem.stem,
                    category=row.problem.category,
                    problem_class=row.problem.class_,
                    terms=terms,
                ),
                self.config.task,
            )


class KernelEnvConfig(vf.EnvConfig):
    """One agent, which answers without tools."""

    agent: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})
    turns: int = 3
    """Kernels that are judged; 1: no feedback."""


class KernelEnv(vf.Env[KernelEnvConfig]):
    """The conversation of a model with the judge."""

    async def run(self, task: KernelTask, agents: vf.Agents) -> None:
        terms, player = Terms(**task.data.terms), f"model:{self.config.agent.model or 'verifiers'}"
        attempts: list[Attempt] = []
        async with agents.agent.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                finish = Finish("length" if interaction.trace.is_truncated else "stop")
                answer = ModelAnswer(segment.last_reply, finish, Spent())
                attempt = Attempt(len(attempts) + 1, answer)
                if answer.outcome == "kernel":
                    judged = await JUDGE.judge(terms, task.data.problem, answer.kernel, player)
                    attempt = replace(attempt, judgement=judged.judgement)
                attempts.append(attempt)
                if len(attempts) >= self.config.turns:
                    break
                said = next_turn(Conversation("", ()), attempts).messages[-1].content
                segment = await interaction.turn(str(said))
        best = best_of(attempts)
        found = numbers(best)
        trace = interaction.trace
        trace.record_reward("reward", found.pop("reward"), 1.0)
        trace.record_metrics(found)
        if best is not None and best.report is not None:
            trace.info["run"] = {
                "id": best.report.run_id,
                "verdict": str(best.report.verdict),
                "detail": best.report.detail,
            }
