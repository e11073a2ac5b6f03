"""`pkb-arena new`: writes a starter kernel."""

from pathlib import Path

import click

from arena.cli.diagnostics import say
from arena.cli.options import problem_argument
from arena.cli.output import print_line
from arena.cli.session import open_session
from arena.errors import UsageError
from arena.paths import make_folder, unwritable
from arena.workspace.atomic_file import write_atomically
from arena.workspace.kernels import Workspace
from arena.workspace.templates import BASELINE, starter, template_names


@click.command()
@problem_argument
@click.option(
    "--template",
    type=click.Choice(template_names()),
    default=BASELINE,
    show_default=True,
    help="What to start from.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write; - is stdout. [default: the workspace's]",
)
@click.option("--force", is_flag=True, help="Overwrite a file that exists.")
def command(problem: str, template: str, output: Path | None, force: bool) -> None:
    """Write a starter kernel for PROBLEM and print its path."""
    session = open_session()
    found = session.problem(problem)
    text = starter(found, template)
    if output is not None and str(output) == "-":
        print_line(text.rstrip("\n"))
        return
    workspace = Workspace(session.paths.workspace)
    path = output if output is not None else workspace.kernel_path(found)
    if path.exists() and not force:
        raise UsageError(f"{path} exists", "choose another file with -o, or --force to overwrite it")
    if output is None:
        workspace.save(path, text)
    else:
        make_folder(path.absolute().parent)
        try:
            write_atomically(path, text.encode(), mode=0o644)
        except OSError as error:
            raise unwritable(path.absolute().parent, error) from None
    print_line(str(path))
    say(f"judge it with: pkb-arena run {found.id} {path}")
