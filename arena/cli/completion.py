"""`pkb-arena completion`: prints the shell's completion script, which click generates."""

import click
from click.shell_completion import get_completion_class

from arena.cli.output import print_line


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for SHELL: bash, zsh or fish.

    \b
    bash  in ~/.bashrc: eval "$(pkb-arena completion bash)"
    zsh   in ~/.zshrc: eval "$(pkb-arena completion zsh)"
    fish  pkb-arena completion fish > ~/.config/fish/completions/pkb-arena.fish
    """
    from arena.cli import COMPLETION_VARIABLE, PROGRAM, cli

    completion = get_completion_class(shell)
    assert completion is not None  # one of click's own three
    print_line(completion(cli, {}, PROGRAM, COMPLETION_VARIABLE).source())
