"""`pkb-arena export`: results, kernels and traces in a folder for others."""

from pathlib import Path

import click

from arena.cli.options import json_option
from arena.cli.output import print_json, print_line
from arena.cli.session import open_session
from arena.export.bundle import FORMATS, export_bundle
from arena.export.manifest import require_key, sign


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--sweep", "--campaign", "sweeps", multiple=True, metavar="NAME", help="Only this sweep; repeatable. [default: all]"
)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="jsonl", show_default=True,
    help="Of the table of results; Parquet needs the extra `parquet`.",
)  # fmt: skip
@click.option(
    "--sign", "key", type=click.Path(path_type=Path, dir_okay=False), metavar="KEY", help="Sign with this SSH key."
)
@json_option
def command(folder: Path, sweeps: tuple[str, ...], form: str, key: Path | None, as_json: bool) -> None:
    """Write a bundle into DIR, a new folder: results as a table, journals, kernels, traces, a data card, a manifest.

    Another arena takes it into its board with `pkb-arena import DIR`.
    """
    session = open_session()
    if key is not None:
        require_key(key.expanduser())
    manifest = export_bundle(session.paths, session.catalogue, folder, sweeps, form)
    if key is not None:
        sign(folder, key.expanduser())
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "results": manifest.results,
                "files": len(manifest.files),
                "signed": key is not None,
            }
        )
    else:
        print_line(f"{folder}: {manifest.results} results in {len(manifest.files)} files{', signed' if key else ''}")
