"""`pkb-arena board`: the scores of all players, with the published scores beside them."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import click

from arena.board.gathering import Board, gather
from arena.board.page import page, whole_picture
from arena.board.tables import DEFINITIONS, csv_text, markdown, table, text_lines
from arena.cli.options import complete_problem, file_option, json_option, open_session
from arena.cli.output import complain, print_json, print_line, print_lines, say
from arena.errors import UsageError
from arena.paths import NAMED, Paths, make_folder, write_named_file
from arena.records.index import stored
from arena.records.run_table import HEADINGS, read_notes, run_cells
from arena.words.headline import verdict_words
from arena.words.untrusted_text import printable
from problems.specification import Problem
from sandbox.protocol.verdict import ExitCode


@click.command()
@click.option(
    "--sweep", "sweeps", multiple=True, metavar="NAME", help="Only this sweep; repeatable. [default: everything]"
)
@click.option("--by", type=click.Choice(["category", "class"]), help="A row for each category or class.")
@click.option(
    "--runs", metavar="PROBLEM", shell_complete=complete_problem, help="The runs of this problem, newest first."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown.")
@file_option("--svg", help="Draw pass@1 and fast_1 of the place with most results.")
@file_option("--html", "page_file", help="Write one page with tables and plots.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    sweeps: tuple[str, ...],
    by: str | None,
    runs: str | None,
    as_csv: bool,
    as_markdown: bool,
    svg: Path | None,
    page_file: Path | None,
    as_json: bool,
) -> None:
    """Scores of models, agents, users, house kernels and the baseline, from sweeps and from single runs.

    Single runs of a player at a problem count as one attempt: the fastest kernel, with all measurements of its code pooled.
    Results of different presets, world sizes or machines are in tables of their own. Plots need the extra `board`.
    A file that is damaged is named and left out; the exit code is 3 then.
    """
    if sum((as_json, as_csv, as_markdown)) > 1:
        raise UsageError("--json, --csv and --markdown exclude each other", "ask for one of them")
    session = open_session()
    if runs is not None:
        _print_runs(session.paths, session.problem(runs), as_csv)
        return
    board = gather(session.paths, session.catalogue, sweeps)
    for file, draw in ((svg, whole_picture), (page_file, page)):
        if file is not None:
            _write(file, draw, board)
    if as_json:
        print_json(board)
    elif as_csv:
        print_line(csv_text(board).rstrip("\n"))
    elif as_markdown:
        print_line(markdown(board, by or ""))
    elif svg is None and page_file is None:
        print_lines([*text_lines(board, by or ""), "", DEFINITIONS])
    for left_out in board.left_out:
        complain(left_out.what, left_out.advice)
    if board.left_out:
        ctx.exit(ExitCode.ENVIRONMENT)


def _print_runs(paths: Paths, problem: Problem, as_csv: bool) -> None:
    """Prints the table of runs that the app's history shows: of all players, revisions and settings."""
    runs = stored(paths, lambda store: store.history(problem.id, None)) or []
    notes = read_notes(paths.workspace)
    rows = [run_cells(run, notes.get(run.sha256, "")) for run in runs]
    if as_csv:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows([HEADINGS, *(row.values() for row in rows)])
        print_line(buffer.getvalue().rstrip("\n"))
        return
    for run, row in zip(runs, rows, strict=True):
        row["verdict"] = row["verdict"] if run.voided else verdict_words(run.verdict)
    print_lines(table([tuple(row.values()) for row in rows], HEADINGS))


def _write(file: Path, draw: Callable[[Board], str], board: Board) -> None:
    text = printable(draw(board), tab=0)
    make_folder(file.absolute().parent, NAMED)
    write_named_file(file, text)
    say(f"{file}: {len(text) / 1024:.0f} KiB")
