"""`pkb-arena demo` and `serve`: duels that run by themselves, and the app in a browser."""

from pathlib import Path

import click

from arena.cli.display import LOOPBACK, ServePlan, display_of, drawn_by, on_a_terminal
from arena.cli.options import file_option, number_option, open_session
from arena.cli.output import print_line
from arena.demo import DEFAULT, load_script, script_text
from arena.errors import UsageError


@click.command()
@click.option(
    "--loop", is_flag=True, help="Repeat all scenes, and return to the demo when no key is pressed for a while."
)
@file_option("--script", help="A speaker's own order (TOML): problems, players, recorded duels, pauses.")
@click.option("--print-script", is_flag=True, help="Print the script that is played without --script, to start from.")
@click.pass_context
def demo(ctx: click.Context, loop: bool, script: Path | None, print_script: bool) -> None:
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


_PLAN = ServePlan()


@click.command()
@click.argument("problem", metavar="[PROBLEM]", default="")
@number_option("--port", within=(0, 65535), default=_PLAN.port, help="Port; 0 takes any free one.")
@click.option("--host", default=_PLAN.host, show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option(
    "--i-know",
    is_flag=True,
    help="Listen beyond this machine: anyone with the owner's link runs programs here, and nothing is encrypted.",
)
@click.option("--read-only", is_flag=True, help="Spectators alone; they follow any arena of yours on this machine.")
@number_option(
    "--spectators",
    within=(0, 64),
    default=_PLAN.spectators,
    help="At the same time, at most; each is a process of about 100 MB.",
)
@number_option(
    "--keep",
    within=(0, 86_400),
    kind=float,
    metavar="SECONDS",
    default=_PLAN.keep_s,
    help="How long the owner's app goes on while no browser shows it.",
)
@click.option(
    "--pass-env",
    multiple=True,
    metavar="NAME",
    help="Hand an environment variable on to the owner's app, as a model's key. Repeatable; others stay here.",
)
@click.pass_context
def serve(
    ctx: click.Context,
    problem: str,
    port: int,
    host: str,
    i_know: bool,
    read_only: bool,
    spectators: int,
    keep: float,
    pass_env: tuple[str, ...],
) -> None:
    """Open the app in a browser, at PROBLEM if one is named. It prints a link for you and one for spectators.

    It listens on this machine alone. Spectators see every run and duel as it goes, and can touch nothing. A reload comes
    back to the running app. To open the link on another machine, forward the port first:

    \b
    ssh -L 8000:127.0.0.1:8000 HOST
    """
    if host not in LOOPBACK and not i_know:
        raise UsageError(
            f"--host {host} lets other machines in, and an owner runs programs here",
            "stay on 127.0.0.1 and use ssh -L, or add --i-know",
        )
    if read_only and not spectators:
        raise UsageError("--read-only --spectators 0 lets nobody in", "let at least one spectator in")
    if read_only and problem:
        raise UsageError("spectators see what is run, not a problem of their own", "leave PROBLEM out")
    serve = drawn_by(display_of(ctx).serve, "serve it with `pkb-arena serve`")
    slug = open_session().problem(problem).slug if problem else ""
    ctx.exit(serve(ServePlan(host, port, slug, not read_only, spectators, keep, pass_env)))
