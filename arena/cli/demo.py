"""`pkb-arena demo`: duels that run without input, for a screen at a stand or behind a speaker."""

from pathlib import Path

import click

from arena.cli.display import display_of, drawn_by, on_a_terminal
from arena.cli.output import print_line
from arena.demo.script import DEFAULT, load_script, script_text
from arena.errors import UsageError


@click.command()
@click.option(
    "--loop", is_flag=True, help="Repeat all scenes, and return to the demo when no key is pressed for a while."
)
@click.option(
    "--script",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A speaker's own order (TOML): problems, players, recorded duels, pauses.",
)
@click.option("--print-script", is_flag=True, help="Print the script that is played without --script, to start from.")
@click.pass_context
def command(ctx: click.Context, loop: bool, script: Path | None, print_script: bool) -> None:
    """Play by itself: live duels on this machine in turns with recorded ones, in big type. Any key takes over.

    It uses no network and needs no keys, unless a script of yours lets a model play. Live duels leave no files behind.
    """
    if print_script:
        print_line(script_text(script or DEFAULT).rstrip("\n"))
        return
    scenes = load_script(script or DEFAULT)
    play = drawn_by(display_of(ctx).play_demo, "play it with `pkb-arena demo`")
    if not on_a_terminal():
        raise UsageError("a demo needs a terminal, and this is not one", "start it in one")
    ctx.exit(play(scenes, loop))
