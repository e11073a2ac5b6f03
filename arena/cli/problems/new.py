"""`pkb-arena new`: writes a starter kernel."""

from pathlib import Path

import click

from arena.cli.diagnostics import say
from arena.cli.options import open_session, problem_argument
from arena.cli.output import print_line
from arena.errors import UsageError
from arena.machine.facts import visible_gpus
from arena.paths import NAMED, make_folder, write_named_file
from arena.workspace import agents_page
from arena.workspace.kernels import Workspace
from arena.workspace.named_kernels import BASELINE, GPU_TEMPLATES, starter, template_names
from sandbox.machine.backends import named


@click.command()
@problem_argument
@click.option(
    "--template", type=click.Choice(template_names()), default=BASELINE, show_default=True, help="What to start from."
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="File to write; - is stdout. [default: the workspace's]"
)
@click.option("--agents", is_flag=True, help="Write AGENTS.md beside it, for a coding agent.")
@click.option("--force", is_flag=True, help="Overwrite a file that exists.")
def command(problem: str, template: str, output: Path | None, agents: bool, force: bool) -> None:
    """Write a starter kernel for PROBLEM and print its path."""
    session = open_session()
    found = session.problem(problem)
    text = starter(found, template)
    if output is not None and str(output) == "-":
        if agents:
            raise UsageError("AGENTS.md lies beside a file, and stdout is none", "name a file with -o")
        print_line(text.rstrip("\n"))
        return
    workspace = Workspace(session.paths.workspace)
    path = output if output is not None else workspace.kernel_path(found)
    page = path.with_name(agents_page.FILE) if agents else None
    for file in (path, page):
        if file is not None and file.is_dir():
            raise UsageError(f"{file} is a folder", f"name a file, such as -o {file}/kernel.py")
        if file is not None and file.exists() and not force:
            raise UsageError(f"{file} exists", "choose another file with -o, or --force to overwrite it")
    if template in GPU_TEMPLATES and not visible_gpus():
        say(f"{template} kernels need GPUs, and this machine has none; --template cpp is for CPU ranks")
    if (backend := named(template)) and (found_here := backend.availability()).advice:
        say(f"{template} kernels do not run here yet: {found_here.found}; {found_here.advice}")
    if output is None:
        workspace.save(path, text)
    else:
        make_folder(path.absolute().parent, NAMED)
        write_named_file(path, text)
    print_line(str(path))
    if page is not None:
        write_named_file(page, agents_page.agents_page(found, path))
        say(f"for an agent: {page}")
    say(f"judge it with: pkb-arena run {found.id} {path}")
