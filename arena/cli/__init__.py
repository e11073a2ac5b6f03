"""The command line: the headless twin of the app, over the same engine.

Commands are imported when they are called, so that `list` does not pay for what `run` needs.
"""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from arena.cli.diagnostics import complain
from arena.cli.output import OutputClosed
from arena.errors import ArenaError
from sandbox.verdict import ExitCode

PROGRAM = "pkb-arena"
COMPLETION_VARIABLE = "_PKB_ARENA_COMPLETE"
COMMANDS = {
    "list": ("arena.cli.list_problems", "Problems, with your best results."),
    "show": ("arena.cli.show", "A problem's card, signature and baseline."),
    "new": ("arena.cli.new", "Write a starter kernel."),
    "run": ("arena.cli.run", "Judge a kernel: is it right, and how much faster than the baseline?"),
    "watch": ("arena.cli.watch", "Judge a kernel on every save."),
    "generate": ("arena.cli.generate", "A model writes a kernel."),
    "agent": ("arena.cli.agent", "A model writes a kernel and improves it by the verdicts."),
    "sweep": ("arena.cli.sweep", "Run every baseline against itself and print a table."),
    "calibrate": ("arena.cli.calibrate", "Measure this machine's peaks for the roofline."),
    "duel": ("arena.cli.duel", "Two players at one problem: who writes the faster kernel?"),
    "duels": ("arena.cli.duels", "The duel board: ratings and the last duels."),
    "replay": ("arena.cli.replay", "Tell a recorded run again."),
    "doctor": ("arena.cli.doctor", "What this machine can do, and what to do about the rest."),
    "check-problem": ("arena.cli.check_problem", "Check a problem folder of your own."),
    "attacks": ("arena.cli.attacks", "Judge kernels that cheat or harm, and see that it does not pay."),
    "config": ("arena.cli.config", "Where settings and files are."),
    "completion": ("arena.cli.completion", "Print the shell's completion script."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])


def _print_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from arena.machine import installed_version

        click.echo(f"{PROGRAM} {installed_version(PROGRAM) or '(not installed)'}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Write a multi-GPU kernel, save it, and see whether it is right and how much faster than NCCL.

    Without a command the app opens.
    PROBLEM is an id (13), a name (gemm_allreduce) or both (13_gemm_allreduce).
    Exit codes: 0 passed, 1 the kernel failed, 2 usage, 3 this machine or the harness, 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        ctx.exit(_open_app())


def _open_app() -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        complain(
            "the app needs a terminal, and this is not one", "`pkb-arena run` works anywhere; see --help"
        )
        return ExitCode.USAGE
    run_app: Callable[[], int] = importlib.import_module("screens.app").run_app  # the engine knows no display
    return run_app()


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `pkb-arena`: runs a command and exits with the documented code."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Callable[..., Any] | None = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # a terminal that cannot show × gets ?, not a traceback
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    try:
        done = cli.main(
            args=arguments, prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE, standalone_mode=False
        )
        sys.stdout.flush()
        return done if isinstance(done, int) else ExitCode.PASS
    except OutputClosed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes at its end
        return ExitCode.ENVIRONMENT
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ExitCode.USAGE
    except click.ClickException as error:
        hint = f"{PROGRAM} {_command_of(error)}--help".strip()
        complain(error.format_message().rstrip("."), f"see `{hint}`")
        return ExitCode.USAGE
    except ArenaError as error:
        complain(error.message, error.advice)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED


def _command_of(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path.removeprefix(PROGRAM).strip()} " if context and context.parent else ""
