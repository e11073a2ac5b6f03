"""The command line: the app's functions without a screen, on the same engine.

A command is imported when it is called, so that `list` does not import what `run` needs.
"""

import difflib
import errno
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from arena.cli.display import Display, display_of, on_a_terminal
from arena.cli.output import OutputLost, complain, drop_output, flush, print_line, while_it_is_read
from arena.errors import ArenaError, SettingsError, UsageError, refusal
from arena.paths import find_paths
from sandbox.protocol.verdict import ExitCode

PROGRAM = "pkb-arena"
COMPLETION_VARIABLE = "_PKB_ARENA_COMPLETE"
COMMANDS = {
    "list": ("problems:list_problems", "Problems, with your best results."),
    "show": ("problems:show", "A problem's card, signature and baseline."),
    "new": ("problems:new", "Write a starter kernel."),
    "run": ("run:run", "Judge a kernel: is it right, and how much faster than the baseline?"),
    "watch": ("run:watch", "Judge a kernel on every save."),
    "profile": ("profile:command", "Why a kernel is slow: one sentence per rank."),
    "generate": ("generate:generate", "A model writes a kernel."),
    "agent": ("generate:agent", "A model writes a kernel and improves it by the verdicts."),
    "stand-in": ("stand_in:command", "A model without a key or money, to see models, agents and duels."),
    "sweep": ("sweep:command", "Run players on problems; without players, every baseline against itself."),
    "board": ("board:command", "Scores of all players, with the published ones beside them."),
    "void": ("void:command", "Mark a result or a kernel as not earned: it is in no standing and no score."),
    "recheck": ("recheck:command", "Judge stored bests again with today's judge: what changed?"),
    "export": ("bundle:export", "Results, kernels and traces as a bundle for others."),
    "import": ("bundle:import_results", "Add another arena's results to the board."),
    "calibrate": ("machine:calibrate", "Measure this machine's peaks for the roofline."),
    "transfers": ("machine:transfers", "Measure each way to move data between this machine's ranks."),
    "duel": ("duel:duel", "Two players at one problem: who writes the faster kernel?"),
    "duels": ("duel:duels", "The duel board: ratings and the last duels."),
    "demo": ("shows:demo", "Show live and recorded duels in big type, without anybody at the keys."),
    "serve": ("shows:serve", "The app in a browser, for you and for spectators."),
    "mcp": ("mcp:command", "The arena as tools for your own agent, over stdin and stdout."),
    "replay": ("replay:command", "Replay a recorded run, duel or trace."),
    "doctor": ("machine:doctor", "What this machine can do, and how to get what it lacks."),
    "check-problem": ("check_problem:command", "Check a problem folder of your own."),
    "config": ("config:config", "Where settings and files are."),
    "completion": ("config:completion", "Print the shell's completion script."),
}
"""Every command: the module and the function in arena/cli, and what it does."""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f"arena.cli.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns a command; for any other word, a command that opens the app at the problem of this name."""
        word = args[0]
        if word in COMMANDS or word.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        return word, _app_at(word), args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])


def _print_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from arena.machine.facts import installed_version

        print_line(f"{PROGRAM} {installed_version(PROGRAM) or '(not installed)'}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    subcommand_metavar="[PROBLEM [KERNEL] | COMMAND [ARGS]...]",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Write a multi-GPU kernel, save it, and see whether it is right and how much faster than NCCL.

    Without a command the app opens; with a PROBLEM it opens there.
    KERNEL is a file or a folder of your own; without it the app opens the workspace's.
    PROBLEM is an id (13), a name (gemm_allreduce) or both (13_gemm_allreduce).
    Exit codes: 0 passed, 1 the kernel failed, 2 usage, 3 this machine or the harness, 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        ctx.exit(_open_app(display_of(ctx)))


def _app_at(word: str) -> click.Command:
    """Returns the command `pkb-arena PROBLEM`. Raises UsageError if there is no such problem."""
    from arena.cli.options import open_session

    try:
        problem = open_session().problem(word)
    except SettingsError:
        raise
    except UsageError as error:
        near = difflib.get_close_matches(word, COMMANDS, n=1)
        hint = f"did you mean `{PROGRAM} {near[0]}`?" if near else error.advice
        raise UsageError(f"there is no command and no problem {word!r}", hint) from None

    @click.argument("kernel", required=False, metavar="[KERNEL]", type=click.Path(path_type=Path, readable=False))
    @click.pass_context
    def open_there(ctx: click.Context, kernel: Path | None) -> None:
        if kernel is not None:
            from arena.workspace.kernel_folder import main_file
            from arena.workspace.kernels import read_kernel

            kernel = read_kernel(kernel).path.absolute()
            if not main_file(kernel).is_file():
                raise UsageError(f"{kernel} is no plain file", f"`{PROGRAM} run {word} {kernel}` reads it once")
        ctx.exit(_open_app(display_of(ctx), problem.slug, kernel))

    words = f"Open the app at {problem.id} · {problem.title}, with KERNEL, a file or folder of your own."
    return click.command(word, help=words)(open_there)


def _open_app(display: Display, problem: str = "", kernel: Path | None = None) -> int:
    if not on_a_terminal():
        complain("the app needs a terminal, and this is not one", "`pkb-arena run` works anywhere; see --help")
        return ExitCode.USAGE
    if display.open_app is None:
        complain("this is the command line without the app", "open the app with `pkb-arena`")
        return ExitCode.USAGE
    return display.open_app(problem, kernel)


def main(arguments: list[str] | None = None, display: Display | None = None) -> None:
    """Runs a command and exits with the documented code. `display` opens the app if no command is given."""
    sys.stdin = sys.stdin or _nothing("r")
    sys.stderr = sys.stderr or _nothing("w")
    if sys.__stdout__ is None:  # the next file that is opened would get its descriptor
        complain("stdout is closed", "leave it open, or send it to a file or to /dev/null")
        sys.exit(ExitCode.ENVIRONMENT)
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Callable[..., Any] | None = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # an encoding without × prints ? and raises no error
    sys.exit(_run(arguments, display or Display()))


def _nothing(mode: str) -> Any:
    """Opens the null device for a closed stream, whose descriptor the next opened file would get."""
    number = os.open(os.devnull, os.O_RDWR)
    os.set_inheritable(number, True)
    return os.fdopen(number, mode)


def _run(arguments: list[str] | None, display: Display) -> int:
    return exit_code_of(
        lambda: cli.main(
            args=arguments, prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE, standalone_mode=False, obj=display
        )
    )


def exit_code_of(call: Callable[[], Any]) -> int:
    """Runs a click program in non-standalone mode, prints any exception, and returns the exit code."""
    try:
        done = call()
        with while_it_is_read():
            flush()
        return done if isinstance(done, int) else ExitCode.PASS
    except OSError as error:  # click prints its help without `print_line`
        if error.errno != errno.ENOSPC or error.filename is not None:
            return _fail(error)
        drop_output()
        complain(f"cannot write: {error.strerror}", "make room, and try again")
        return ExitCode.ENVIRONMENT
    except (OutputLost, SystemExit) as error:  # click exits with 1 if the reader of its help is gone
        drop_output()
        if isinstance(error, OutputLost) and error.message:
            complain(error.message, error.advice)
            return ExitCode.ENVIRONMENT
        return ExitCode.PASS
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ExitCode.USAGE
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        complain(error.format_message(), f"see `{context.command_path if context else PROGRAM} --help`")
        return ExitCode.USAGE
    except ArenaError as error:
        return _refuse(error)
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED
    except (Exception, BaseExceptionGroup) as error:  # a group comes from concurrent tasks
        return _fail(error)


def _refuse(error: ArenaError) -> int:
    complain(error.message, error.advice)
    return error.exit_code


def _fail(error: BaseException) -> int:
    """Reports an unexpected error: a path to which access was denied, or a bug, whose traceback is stored."""
    if refused := refusal(error):
        return _refuse(refused)
    import traceback

    from arena.fault_report import without_keys, write_report

    try:
        path = find_paths().traceback
        write_report(path, error)
        where = f"the traceback is in {path}: if this machine is not the cause, report a bug with that file"
    except (OSError, RuntimeError, ArenaError):
        trace = without_keys("".join(traceback.format_exception(error)))
        where = f"if this machine is not the cause, report a bug with this traceback:\n{trace}"
    complain(f"unexpected error: {type(error).__name__}: {error}".removesuffix(": "), where)
    return ExitCode.ENVIRONMENT
