"""`pkb-arena import`: adds another arena's results to the board."""

from pathlib import Path

import click

from arena.cli.options import json_option
from arena.cli.output import counted, print_json, print_line
from arena.cli.session import open_session
from arena.export.bundle import import_bundle
from arena.export.manifest import signer_of


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--signers", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Require a signature by somebody in this file of allowed signers (ssh-keygen).",
)  # fmt: skip
@json_option
def command(folder: Path, signers: Path | None, as_json: bool) -> None:
    """Add the results of a bundle to the board, marked as from elsewhere. Nothing in it is run.

    Every file is compared with the manifest first. Without --signers that shows damage, not who made it.
    """
    session = open_session()
    signer = signer_of(folder, signers.expanduser()) if signers is not None else ""
    names, manifest = import_bundle(session.paths, folder)
    if as_json:
        print_json({"campaigns": names, "results": manifest.results, "signer": signer or None})
    else:
        by = f", signed by {signer}" if signer else ""
        results = counted(manifest.results, "result")
        print_line(f"{results}{by}: {', '.join(names)}; `pkb-arena board` shows them as from elsewhere")
