"""Arguments and options that several commands share."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from arena.cli.output import complain
from arena.errors import UsageError
from arena.paths import Paths, files_in, find_paths
from arena.setting_choice import Choice, find_problem
from arena.settings import BUDGET_WORDS, LEAST_BUDGET_S, MOST_BUDGET_S, MOST_RANKS, MOST_ROUNDS, Settings, load_settings
from arena.workspace.kernels import Workspace
from arena.workspace.named_kernels import NAMED
from problems.catalogue import Catalogue, load_catalogue
from problems.specification import PRESETS, Problem
from sandbox.machine import thunderkittens
from sandbox.machine.devices import KINDS
from sandbox.protocol.kernel_files import MAIN

if TYPE_CHECKING:
    from arena.records.ranking import Standing

T = TypeVar("T", bound=Callable[..., Any])
MOST_OFFERED, MOST_NAMED = 50, 5
"""Number of runs, and of duels, that completion offers; of the user's kernels that an error names."""


@dataclass(frozen=True)
class CliSession:
    """One call of the command line."""

    paths: Paths
    settings: Settings
    catalogue: Catalogue

    def problem(self, name: str) -> Problem:
        """Returns the problem with this id, slug or stem.

        Raises:
            UsageError: there is none.
        """
        return find_problem(self.catalogue, name)

    def standings(self) -> "dict[int, Standing]":
        """Returns the user's standing by problem id; empty before the first run. Creates no files before it."""
        from arena.records.index import Store, stored  # importing sqlite3 takes time

        return stored(self.paths, Store.standings) or {}


def open_session(warn: bool = False) -> CliSession:
    """Reads the settings and the catalogue. With `warn`, prints the problem folders that could not be read.

    Raises:
        SettingsError: the settings file is invalid.
    """
    paths = find_paths()
    settings = load_settings(paths)
    thunderkittens.name(settings.thunderkittens)
    catalogue = load_catalogue(settings.problem_folders)
    if warn:
        for broken in catalogue.broken:
            complain(f"a problem was left out: {broken}")
    return CliSession(paths, settings, catalogue)


def number_option(
    *names: str,
    within: tuple[float, float],
    help: str,
    kind: type[int] | type[float] = int,
    metavar: str = "N",
    default: float | None = None,
) -> Callable[[T], T]:
    """Returns an option with a finite number. Its help shows the range, and the default if there is one.

    within: least and most; a most of `math.inf`: any larger number.
    """
    least, most = within
    words = f"from {least:g} to {most:g}" if math.isfinite(most) else f"{least:g} or more"

    def checked(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
        if value is not None and not (least <= value <= most and math.isfinite(value)):  # NaN fails every comparison
            raise click.BadParameter(f"{value:.15g} is not {words}", ctx, param)
        return value

    told, shown = f"{help}  [{words}]", default is not None
    return click.option(
        *names, type=kind, callback=checked, metavar=metavar, default=default, show_default=shown, help=told
    )


def file_option(*names: str, help: str) -> Callable[[T], T]:
    return click.option(*names, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help=help)


def kernel_path(text: str) -> Path:
    """The file for a kernel: kernel.py in a folder if the text ends with a slash."""
    return Path(text, MAIN if text.endswith("/") else "")


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


def complete_problem(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offers the ids and names of the problems."""
    problems = open_session().catalogue.problems
    names = {name: problem.title for problem in problems for name in (problem.slug, str(problem.id))}
    return [CompletionItem(name, help=title) for name, title in names.items() if name.startswith(incomplete.lower())]


def complete_kernel(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offers named kernels and files; where a player is asked for, the models and agents of the settings, too."""
    names = list(NAMED)
    if isinstance(param, click.Option):
        settings = open_session().settings
        names += [f"{kind}:{name}" for kind in ("model", "agent") for name in settings.models]
        names += [f"agent:{name}" for name in settings.agents]
    found = [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]
    return [*found, CompletionItem(incomplete, type="file")]


def complete_result(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offers `last`, the ids of the newest runs and duels, and files."""
    paths = find_paths()
    newest = [path.stem for folder in (paths.runs, paths.duels) for path in files_in(folder)[-MOST_OFFERED:]]
    found = [CompletionItem(name) for name in ("last", *reversed(newest)) if name.startswith(incomplete)]
    return [*found, CompletionItem(incomplete, type="file")]


def complete_dtype(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offers the dtypes of the command's problem; of any problem if it is not known."""
    problems = {problem.slug: problem for problem in open_session().catalogue.problems}
    first = next(iter(ctx.args), "")  # click names no arguments before an option without its value
    named = [each for each in problems.values() if first in (each.slug, str(each.id), each.stem)]
    known = dict.fromkeys(dtype for problem in named or problems.values() for dtype in problem.dtypes)
    return [CompletionItem(dtype) for dtype in known if dtype.startswith(incomplete)]


problem_argument = click.argument("problem", metavar="PROBLEM", shell_complete=complete_problem)


def _given(ctx: click.Context, param: click.Parameter, kernel: Path | None) -> Path:
    """Returns the kernel; if there is none, names the user's own of the problem in a UsageError."""
    if kernel is None:
        session = open_session()
        problem = session.problem(ctx.params["problem"])
        workspace = Workspace(session.paths.workspace)
        own = [str(path) for path in workspace.variants(workspace.last_open(problem)) if path.exists()]
        yours = ", ".join(own[:MOST_NAMED]) or f"a file, as `pkb-arena new {problem.id}` writes"
        words = " or ".join(["baseline", "house"] if problem.house_source is not None else ["baseline"])
        raise UsageError(f"KERNEL is missing for {problem.id} {problem.slug}", f"name {yours}; or {words}")
    return kernel


kernel_argument = click.argument(
    "kernel", metavar="KERNEL", required=False, callback=_given, shell_complete=complete_kernel,
    type=click.Path(path_type=Path, readable=False),
)  # fmt: skip


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --preset --world --device --dtype --size. The command gets them as `choice: Choice`."""

    @click.option("--preset", type=click.Choice(PRESETS), help="Sizes. [default: tiny on CPU, production on GPUs]")
    @number_option("--world", within=(1, MOST_RANKS), help="Ranks. [default: 2 on CPU, else all GPUs]")
    @click.option("--device", type=click.Choice(list(KINDS)), help="Where ranks run. [default: GPUs if any]")
    @click.option(
        "--dtype",
        metavar="T",
        shell_complete=complete_dtype,
        help="Run dtype, such as float32. [default: the problem's first]",
    )
    @click.option(
        "--size",
        "sizes",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_parse_sizes,
        help="Override a size of the preset; repeatable.",
    )
    @functools.wraps(command)
    def wrapped(*args: Any, **given: Any) -> Any:
        choice = Choice(**{name: given.pop(name) for name in Choice.__struct_fields__})
        return command(*args, choice=choice, **given)

    return wrapped


rounds_option = number_option(
    "--rounds",
    within=(0, MOST_ROUNDS),
    help="Exactly N timing rounds; 0 checks correctness only. [default: as many as the noise requires]",
)
seconds_option = number_option(
    "--seconds",
    within=(LEAST_BUDGET_S, MOST_BUDGET_S),
    kind=float,
    metavar="SECONDS",
    help=f"{BUDGET_WORDS} [default: the setting seconds]",
)
budget_option = number_option(
    "--budget",
    "budget_usd",
    within=(1e-6, math.inf),
    kind=float,
    metavar="USD",
    help="Money limit in dollars: a player's of a duel, else of the whole command, resumed or not. Needs the models' prices.",
)
shots_option = number_option(
    "--shots",
    within=(0, 3),
    default=1,
    help="Worked examples in the prompt, never of this problem, its class or its collectives. 0: zero-shot.",
)
unsafe_option = click.option(
    "--unsafe", is_flag=True, help="Run a model's kernel even if this machine has no jail for it."
)
