"""`pkb-arena import`: adds another arena's results to the board."""

from pathlib import Path

import click

from arena.cli.options import json_option, open_session
from arena.cli.output import counted, print_json, print_line
from arena.export.bundle import import_bundle, import_inspect_log


@click.command()
@click.argument("source", metavar="DIR|LOG", type=click.Path(path_type=Path))
@json_option
def command(source: Path, as_json: bool) -> None:
    """Add the results of a bundle or of an Inspect log to the board, marked as from elsewhere. Nothing in it is run.

    Every file is compared with the manifest first. That shows damage, not who made it.

    LOG is a log of `inspect eval pkb_arena/pkb`. Its epochs are attempts.
    """
    session = open_session()
    if source.is_file():
        names, results = import_inspect_log(session.paths, session.catalogue, source)
    else:
        names, results = import_bundle(session.paths, source)
    if as_json:
        print_json({"campaigns": names, "results": results})
    else:
        print_line(f"{counted(results, 'result')}: {', '.join(names)}; `pkb-arena board` shows them as from elsewhere")
