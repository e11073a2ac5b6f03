"""`pkb-arena demo`: duels without anybody at the keys, for a screen at a stand or behind a speaker."""

import sys
from pathlib import Path

import click

from arena.cli.display import display_of, drawn_by
from arena.cli.output import print_line
from arena.demo.script import DEFAULT, load_script
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

    It asks no network and needs no keys, unless a script of yours lets a model play. Live duels leave no files behind.
    """
    if print_script:
        print_line((script or DEFAULT).read_text(encoding="utf-8").rstrip("\n"))
        return
    scenes = load_script(script or DEFAULT)
    play = drawn_by(display_of(ctx).play_demo, "play it with `pkb-arena demo`")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("a demo needs a terminal, and this is not one", "start it in one")
    ctx.exit(play(scenes, loop))
