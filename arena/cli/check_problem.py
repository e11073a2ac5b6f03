"""`pkb-arena check-problem`: does a problem tell right from wrong?"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from arena.cli.diagnostics import say
from arena.cli.options import json_option
from arena.cli.output import print_json, print_line
from arena.errors import MachineError, UsageError
from arena.own_modules import ROOT, module_command, module_environment
from arena.templates import signature
from problems.specification import ProblemError, load_problem
from sandbox.verdict import ExitCode

TABLE = ROOT / "problems" / "ADMISSION.md"
CHEATS = ("zeros", "constant", "input", "other_trial", "fp8", "wrong_dtype", "one_wrong", "silent")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--all", "everything", is_flag=True, help="All problems of the benchmark.")
@click.option(
    "--world",
    default="1,2,3,4,8",
    show_default=True,
    help="World sizes to try, where the problem allows them.",
)
@click.option("--write", is_flag=True, help="With --all: write the table to problems/ADMISSION.md.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, folder: Path | None, everything: bool, world: str, write: bool, as_json: bool
) -> None:
    """Put a problem folder through the admission test, on CPU ranks.

    Its baseline must pass its own rules in every world and dtype; zeros, a constant, the input, another trial's answer, eight
    bits, a wrong dtype, one wrong element, and a world in which nobody communicates must not.
    """
    if everything == (folder is not None):
        raise UsageError("name one problem folder, or say --all", "pkb-arena check-problem my_problems/halo")
    if folder is not None:
        _read(folder, quiet=as_json)
    rows = []
    for row in _examined(["all"] if folder is None else [str(folder)], world):
        rows.append(row)
        say(f"{row['stem']} W={row['world']} {row['dtype']}: {'; '.join(row['against']) or 'ok'}")
    if as_json:
        print_json(rows)
    if write and everything:
        TABLE.write_text(table(rows), encoding="utf-8")
        say(f"wrote {TABLE}")
    ctx.exit(ExitCode.KERNEL_FAILED if any(row["against"] for row in rows) else ExitCode.PASS)


def _read(folder: Path, quiet: bool) -> None:
    try:
        problem = load_problem(folder)
        text = signature(problem)
    except ProblemError as error:
        raise UsageError(str(error)) from None
    except SyntaxError as error:
        raise UsageError(
            f"{folder / 'baseline.py'}:{error.lineno}: {error.msg}", "correct that line"
        ) from None
    if not quiet:
        print_line(f"{problem.stem}: {problem.title}")
        print_line(text)


def _examined(names: list[str], world: str) -> Iterator[dict[str, Any]]:
    """Rows of the admission test, which imports torch and so runs in a process of its own."""
    command = [*module_command("sandbox.admission"), *names, "--world", world, "--json"]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=module_environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            yield json.loads(line)
        words = process.stderr.read()
    if process.returncode not in (0, 1) or (process.returncode == 1 and "Traceback" in words):
        raise MachineError(
            f"the admission test failed: {words.strip().splitlines()[-1:]}", "run `pkb-arena doctor`"
        )


def table(rows: list[dict[str, Any]]) -> str:
    """The admission table: one row per problem, over the worlds and dtypes that were tried."""
    lines = [
        "# Admission of the problems",
        "",
        "Written by `pkb-arena check-problem --all --write`. Per problem, over all world sizes and dtypes tried: whether",
        "the baseline passes its own rules, its largest relative RMS error against the oracle, and for each cheat the",
        "number of trials in which it was rejected. What is excused, and why, stands in the problem's problem.toml.",
        "",
        "| problem | worlds | dtypes | baseline | own rms | "
        + " | ".join(CHEATS)
        + " | MiB, all ranks' RSS added (torch alone: 215 a rank) | objections |",
        "|---|---|---|---|---|" + "---|" * len(CHEATS) + "---|---|",
    ]
    for stem in dict.fromkeys(row["stem"] for row in rows):
        mine = [row for row in rows if row["stem"] == stem]
        worlds = ", ".join(str(world) for world in dict.fromkeys(row["world"] for row in mine))
        dtypes = ", ".join(dict.fromkeys(row["dtype"] for row in mine))
        passed = sum(row.get("baseline", [""])[0] == "PASS" for row in mine)
        against = "; ".join(dict.fromkeys(text for row in mine for text in row["against"]))
        own = max((row.get("own_rms", 0.0) for row in mine), default=0.0)
        peak = max((row.get("peak_mib", 0) * row["world"] for row in mine), default=0)
        cells = [_tally(mine, cheat) for cheat in CHEATS]
        first = [stem, worlds, dtypes, f"{passed}/{len(mine)}", f"{own:.1e}"]
        lines.append(f"| {' | '.join([*first, *cells, str(peak), against or '–'])} |")
    return "\n".join(lines) + "\n"


def _tally(rows: list[dict[str, Any]], cheat: str) -> str:
    judged = [row[cheat][0] for row in rows if cheat in row and row[cheat][0] != "N/A"]
    if not judged:
        return "none"
    rejected = sum(verdict != "PASS" for verdict in judged)
    return str(rejected) if rejected == len(judged) else f"{rejected} of {len(judged)} (excused)"
