"""Arguments and options that several commands share."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from arena.cli.numbers import Number, Whole
from arena.runs.run_request import MOST_ROUNDS
from arena.setting_choice import Choice
from arena.settings import BUDGET_WORDS, LEAST_BUDGET_S, MOST_BUDGET_S, MOST_RANKS
from problems.specification import PRESETS
from sandbox.machine.devices import KINDS

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout, and nothing else there.")


def _parse_sizes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    sizes = {}
    for value in values:
        name, equals, number = value.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{value!r} is not NAME=VALUE, such as M=4096", ctx, param)
        try:
            sizes[name.strip()] = int(number)
        except ValueError:
            raise click.BadParameter(f"{name}: {number!r} is not a whole number", ctx, param) from None
    return sizes


def _complete_problem(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from arena.cli.session import open_session

    problems = open_session().catalogue.problems
    names = {name: problem.title for problem in problems for name in (problem.slug, str(problem.id))}
    return [CompletionItem(name, help=title) for name, title in names.items() if name.startswith(incomplete.lower())]


problem_argument = click.argument("problem", metavar="PROBLEM", shell_complete=_complete_problem)
kernel_argument = click.argument("kernel", metavar="KERNEL", type=click.Path(path_type=Path, readable=False))


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --preset --world --device --dtype --size. The command gets them as `choice: Choice`."""

    @click.option("--preset", type=click.Choice(PRESETS), help="Sizes. [default: tiny on CPU, production on GPUs]")
    @click.option("--world", type=Whole(1, MOST_RANKS), metavar="N", help="Ranks. [default: 2 on CPU, else all GPUs]")
    @click.option("--device", type=click.Choice(list(KINDS)), help="Where ranks run. [default: GPUs if any]")
    @click.option("--dtype", metavar="T", help="Run dtype, such as float32. [default: the problem's first]")
    @click.option(
        "--size",
        "sizes",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_parse_sizes,
        help="Override a size of the preset; repeatable.",
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        preset: str | None,
        world: int | None,
        device: str | None,
        dtype: str | None,
        sizes: dict[str, int],
        **kwargs: Any,
    ) -> Any:
        choice = Choice(preset=preset, world=world, device=device, dtype=dtype, sizes=sizes)
        return command(*args, choice=choice, **kwargs)

    return wrapped


rounds_option = click.option(
    "--rounds",
    type=Whole(0, MOST_ROUNDS),
    metavar="N",
    help="Exactly N timing rounds; 0 checks correctness only. [default: as many as the noise requires]",
)
budget_option = click.option(
    "--budget",
    type=Number(LEAST_BUDGET_S, MOST_BUDGET_S),
    metavar="SECONDS",
    help=f"{BUDGET_WORDS} [default: the setting budget_s]",
)
shots_option = click.option(
    "--shots",
    metavar="N",
    type=Whole(0, 3),
    default=1,
    show_default=True,
    help="Worked examples in the prompt, never of this problem, its class or its collectives. 0: zero-shot.",
)
unsafe_option = click.option(
    "--unsafe", is_flag=True, help="Run a model's kernel even if this machine has no jail for it."
)
