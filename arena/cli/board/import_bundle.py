"""`pkb-arena import`: adds another arena's results to the board."""

from pathlib import Path

import click

from arena.cli.options import json_option, open_session
from arena.cli.output import counted, print_json, print_line
from arena.export.bundle import import_bundle


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@json_option
def command(folder: Path, as_json: bool) -> None:
    """Add the results of a bundle to the board, marked as from elsewhere. Nothing in it is run.

    Every file is compared with the manifest first. That shows damage, not who made it.
    """
    names, results = import_bundle(open_session().paths, folder)
    if as_json:
        print_json({"campaigns": names, "results": results})
    else:
        print_line(f"{counted(results, 'result')}: {', '.join(names)}; `pkb-arena board` shows them as from elsewhere")
