"""`pkb-arena export` and `import`: results in a folder that can be shared, and those of another arena."""

from pathlib import Path

import click

from arena.cli.options import CliSession, json_option, open_session
from arena.cli.output import complain, counted, print_found
from arena.errors import UsageError
from arena.export.bundle import FORMATS, export_bundle, import_bundle, import_inspect_log
from arena.export.harbor import export_harbor
from arena.export.pages import export_pages
from arena.machine.facts import installed_version
from arena.sweep.journal import UNREADABLE_ADVICE
from sandbox.protocol.verdict import ExitCode


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--sweep", "sweeps", multiple=True, metavar="NAME", help="Only this sweep; repeatable. [default: all]")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="jsonl", show_default=True,
    help="Of the table of results; Parquet needs the extra `parquet`.",
)  # fmt: skip
@click.option(
    "--html", "as_pages", is_flag=True, help="Write static pages instead: an index, and a page for each attempt."
)
@click.option("--harbor", is_flag=True, help="Write tasks for Harbor instead, one for each problem.")
@json_option
@click.pass_context
def export(
    ctx: click.Context, folder: Path, sweeps: tuple[str, ...], form: str, as_pages: bool, harbor: bool, as_json: bool
) -> None:
    """Write a bundle into DIR, a new folder: results as a table, journals, kernels, traces, a data card, a manifest.

    Another arena takes it into its board with `pkb-arena import DIR`. Without a sweep, all runs are exported, as a table without
    journals. `datasets.load_dataset(DIR)` reads the table.

    With --html, DIR gets pages for a browser: prompt, steps, kernels with their changes, verdicts and cost of every attempt,
    single runs included. They need no server and no script. A file that is damaged is named and left out; the exit code is
    3 then.
    """
    session = open_session()
    if as_pages + harbor + (form != FORMATS[0]) > 1:
        raise UsageError("--html, --harbor and --format exclude each other", "leave two of them out")
    if harbor:
        ctx.exit(_write_tasks(session, folder, as_json))
    if as_pages:
        ctx.exit(_write_pages(session, folder, sweeps, as_json))
    manifest = export_bundle(session.paths, session.catalogue, folder, sweeps, form)
    found = {"folder": str(folder), "results": manifest.results, "files": len(manifest.files)}
    what = f"{counted(manifest.results, 'result')} in {counted(len(manifest.files), 'file')}"
    of_sweeps = any(name.startswith("sweeps/") for name in manifest.files)
    print_found(as_json, found, f"{folder}: {what}{' of sweeps; single runs are left out' * of_sweeps}")


def _write_tasks(session: CliSession, folder: Path, as_json: bool) -> ExitCode:
    version = installed_version("pkb-arena") or ""
    count = export_harbor(session.paths, session.catalogue, session.settings, folder, version)
    words = f"{folder}: {counted(count, 'task')}; their verifier needs the image of the Dockerfile: pkb-arena"
    print_found(as_json, {"folder": str(folder), "tasks": count}, words)
    return ExitCode.PASS


def _write_pages(session: CliSession, folder: Path, sweeps: tuple[str, ...], as_json: bool) -> ExitCode:
    count, left_out = export_pages(session.paths, session.catalogue, folder, sweeps)
    index = folder / "index.html"
    found = {"folder": str(folder), "index": str(index), "attempts": count, "left_out": left_out}
    print_found(as_json, found, f"{index}: {counted(count, 'attempt')}")
    for what in left_out:
        complain(what, UNREADABLE_ADVICE)
    return ExitCode.ENVIRONMENT if left_out else ExitCode.PASS


@click.command()
@click.argument("source", metavar="DIR|LOG", type=click.Path(path_type=Path))
@json_option
def import_results(source: Path, as_json: bool) -> None:
    """Add the results of a bundle or of an Inspect log to the board, marked as from elsewhere. Nothing in it is run.

    Every file is compared with the manifest first. That shows damage, not who made it.

    LOG is a log of `inspect eval pkb_arena/pkb`. Its epochs are attempts.
    """
    session = open_session()
    if source.is_file():
        names, results = import_inspect_log(session.paths, session.catalogue, source)
    else:
        names, results = import_bundle(session.paths, source)
    words = f"{counted(results, 'result')}: {', '.join(names)}; `pkb-arena board` shows them as from elsewhere"
    print_found(as_json, {"sweeps": names, "results": results}, words)
