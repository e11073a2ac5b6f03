"""`pkb-arena check-problem`: runs the admission test of a problem folder."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from arena.cli.options import json_option
from arena.cli.output import print_json, print_line, say, while_it_is_read
from arena.errors import MachineError, UsageError
from arena.paths import ROOT, module_command, module_environment
from arena.setting_choice import check_world
from arena.words.table import markdown_table
from arena.workspace.named_kernels import signature
from problems.specification import Problem, ProblemError, load_problem
from sandbox.admission.row import CHEATS, HONEST, SETTINGS, AdmissionRow
from sandbox.protocol.verdict import ExitCode, Verdict

TABLE = ROOT / "problems" / "ADMISSION.md"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--all", "everything", is_flag=True, help="All problems of the benchmark.")
@click.option(
    "--world",
    metavar="N,N",
    default="1,2,3,4,8",
    show_default=True,
    help="World sizes to try, where the problem allows them.",
)
@click.option(
    "--preset",
    metavar="NAME,NAME",
    default=",".join(SETTINGS),
    show_default=True,
    help="Sizes to try: tiny in every world, the others in the first world with messages.",
)
@click.option("--write", is_flag=True, help="With --all: write the table to problems/ADMISSION.md.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, folder: Path | None, everything: bool, world: str, preset: str, write: bool, as_json: bool
) -> None:
    """Put a problem folder through the admission test, on CPU ranks.

    The baseline must pass its own rules in every world and dtype. Outputs that are right in another way must pass, too.

    These outputs must fail: zeros, a constant, the input, another trial's answer, eight bits, a wrong dtype. So must one
    wrong or stale output, coarse messages, coarse inputs, inputs left out, the average of other outputs, and ranks that do not
    communicate.
    """
    if everything == (folder is not None):
        raise UsageError("name one problem folder, or say --all", "pkb-arena check-problem my_problems/halo")
    worlds = _worlds(world)
    if unknown := [name for name in preset.split(",") if name not in SETTINGS]:
        raise UsageError(f"--preset {unknown[0]!r} is unknown", f"choose from {', '.join(SETTINGS)}")
    if folder is not None:
        problem = _read(folder, quiet=as_json)
        if not set(worlds) & set(problem.worlds):
            check_world(problem, worlds[0])
    rows = []
    for row in _examined(["all"] if folder is None else [str(folder)], worlds, preset):
        rows.append(row)
        say(f"{row.stem} {row.preset} W={row.world} {row.dtype}: {'; '.join(row.against) or 'ok'}")
    if not rows:
        raise UsageError(f"no problem runs on {world} ranks", "name other world sizes with --world")
    if as_json:
        with while_it_is_read():
            print_json(rows)
    if write and everything:
        TABLE.write_text(table(rows), encoding="utf-8")
        say(f"wrote {TABLE}")
    ctx.exit(ExitCode.KERNEL_FAILED if any(row.against for row in rows) else ExitCode.PASS)


def _worlds(text: str) -> list[int]:
    try:
        worlds = [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--world {text!r}: world sizes are numbers with commas between them", "such as --world 1,2,4"
        ) from None
    return worlds


def _read(folder: Path, quiet: bool) -> Problem:
    try:
        problem = load_problem(folder)
        text = signature(problem)
    except ProblemError as error:
        raise UsageError(str(error)) from None
    except SyntaxError as error:
        raise UsageError(f"{folder / 'baseline.py'}:{error.lineno}: {error.msg}", "correct that line") from None
    if not quiet:
        print_line(f"{problem.stem}: {problem.title}")
        print_line(text)
    return problem


def _examined(names: list[str], worlds: list[int], presets: str) -> Iterator[AdmissionRow]:
    """Yields the rows of the admission test. It imports torch, so it runs in a process of its own."""
    sizes = ",".join(map(str, worlds))
    command = [*module_command("sandbox.admission.admission"), *names, "--world", sizes, "--preset", presets]
    admitted = True
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, text=True, env=module_environment()
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            row = msgspec.convert(json.loads(line), AdmissionRow)
            admitted &= not row.against
            yield row
        code = process.wait()
        said.seek(0)
        last = (said.read().strip().splitlines() or ["it printed nothing"])[-1]
    if code == ExitCode.USAGE:
        raise UsageError(last)
    if code != (ExitCode.PASS if admitted else ExitCode.KERNEL_FAILED):
        raise MachineError(f"the admission test failed: {last}", "run `pkb-arena doctor`")


def table(rows: list[AdmissionRow]) -> str:
    """Returns the admission table: one row per problem, over all worlds and dtypes that were tried."""
    worlds = ",".join(map(str, sorted({row.world for row in rows})))
    head = Path(__file__).with_name("admission.md").read_text(encoding="utf-8")
    headings = ["problem", "worlds", "dtypes", "baseline", "own rms", *CHEATS, *HONEST, *SETTINGS[1:]]
    headings += ["MiB, all ranks' RSS added (torch alone: 215 a rank)", "objections"]
    lines = []
    for stem in dict.fromkeys(row.stem for row in rows):
        all_sizes = [row for row in rows if row.stem == stem]
        mine = [row for row in all_sizes if row.preset == "tiny"]
        tried = ", ".join(str(world) for world in dict.fromkeys(row.world for row in mine))
        dtypes = ", ".join(dict.fromkeys(row.dtype for row in mine))
        passed = sum(row.tried("baseline") == Verdict.PASS for row in mine)
        against = "; ".join(dict.fromkeys(text for row in all_sizes for text in row.against))
        own = max((row.own_rms or 0.0 for row in mine), default=0.0)
        peak = max(((row.peak_mib or 0) * row.world for row in mine), default=0)
        cells = [_tally(mine, cheat) for cheat in CHEATS] + [_passes(mine, honest) for honest in HONEST]
        cells += [_at(all_sizes, name) for name in SETTINGS[1:]]
        first = [stem, tried, dtypes, f"{passed}/{len(mine)}", f"{own:.1e}"]
        lines.append([*first, *cells, str(peak), against or "–"])
    return "\n".join([*head.format(worlds=worlds).splitlines(), "", *markdown_table(headings, lines), ""])


def _tally(rows: list[AdmissionRow], cheat: str) -> str:
    judged = [verdict for row in rows if (verdict := row.tried(cheat)) is not None]
    if not judged:
        return "none"
    rejected = sum(verdict != Verdict.PASS for verdict in judged)
    return str(rejected) if rejected == len(judged) else f"{rejected} of {len(judged)} (excused)"


def _at(rows: list[AdmissionRow], preset: str) -> str:
    """How many trials of all cheats were rejected with these sizes, and which passed."""
    tried = [(c, v) for row in rows if row.preset == preset for c in CHEATS if (v := row.tried(c)) is not None]
    passed = dict.fromkeys(cheat for cheat, verdict in tried if verdict == Verdict.PASS)
    words = f"{sum(verdict != Verdict.PASS for _, verdict in tried)}/{len(tried)}" if tried else "none"
    return f"{words} ({', '.join(passed)})" if passed else words


def _passes(rows: list[AdmissionRow], honest: str) -> str:
    judged = [verdict for row in rows if (verdict := row.tried(honest)) is not None]
    return f"{sum(verdict == Verdict.PASS for verdict in judged)}/{len(judged)}" if judged else "none"
