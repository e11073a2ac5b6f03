"""Writes the man page docs/pkb-arena.1 from the help of the commands: `python docs/manual_page.py`."""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from arena.cli import COMMANDS, cli
from arena.paths import HOME_VARIABLE
from sandbox.protocol.verdict import ExitCode

PAGE = Path(__file__).with_name("pkb-arena.1")
_CODES = {
    ExitCode.PASS: "the kernel passed, or the command did its work",
    ExitCode.KERNEL_FAILED: "the kernel failed; the verdict says how",
    ExitCode.USAGE: "wrong usage: unknown problem, no such file, a world size that the problem does not allow",
    ExitCode.ENVIRONMENT: "the machine, its files or the harness prevent the run",
    ExitCode.INTERRUPTED: "interrupted",
}
_VARIABLES = {
    HOME_VARIABLE: "One folder for settings, data and state, instead of the XDG folders.",
    "CUDA_VISIBLE_DEVICES": "The GPUs that an arena uses. Several users can share a machine with it.",
    "NO_COLOR": "No colours.",
    "VISUAL, EDITOR": "The editor that F2 opens.",
}
_FILES = {
    "$XDG_CONFIG_HOME/pkb-arena/settings.toml": "Settings; `pkb-arena config show` explains each.",
    "$XDG_DATA_HOME/pkb-arena/": "Kernels and their revisions, a journal of every run, results.",
    "$XDG_STATE_HOME/pkb-arena/": "Caches. They may be deleted at any time.",
}


def page() -> str:
    """The man page as roff."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield r".\" Written by docs/manual_page.py from the help of the commands."
    yield '.TH PKB-ARENA 1 "" "pkb-arena" "User Commands"'
    yield ".SH NAME"
    yield r"pkb-arena \- a terminal arena for multi-GPU kernels"
    yield ".SH SYNOPSIS"
    yield r".B pkb-arena"
    yield r"[\fIPROBLEM\fR [\fIKERNEL\fR] | \fICOMMAND\fR [\fIARGUMENT\fR]...]"
    yield ".SH DESCRIPTION"
    yield from _prose(cli.help or "")
    yield ".SH COMMANDS"
    context = click.Context(cli, info_name="pkb-arena")
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        yield from _command(click.Context(command, info_name=name, parent=context), command)
    yield ".SH EXIT STATUS"
    for code, words in _CODES.items():
        yield from _entry(str(int(code)), words)
    for title, entries in (("ENVIRONMENT", _VARIABLES), ("FILES", _FILES)):
        yield f".SH {title}"
        for name, words in entries.items():
            yield from _entry(name, words)


def _command(context: click.Context, command: click.Command) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".SS {_roff(context.command_path.removeprefix('pkb-arena '))} {_roff(usage)}"
    yield from _prose(command.help or "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            part = command.get_command(context, name)
            assert part is not None
            yield from _command(click.Context(part, info_name=name, parent=context), part)
        return
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1] and "--help" not in parameter.opts:
            yield from _entry(*record)


def _prose(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        yield ".PP"
        if paragraph.lstrip().startswith("\b"):
            yield ".nf"
            yield from (_roff(line) for line in paragraph.lstrip().removeprefix("\b").strip("\n").splitlines())
            yield ".fi"
        else:
            yield _roff(" ".join(paragraph.split()))


def _entry(name: str, words: str) -> Iterator[str]:
    yield ".TP"
    yield rf"\fB{_roff(name)}\fR"
    yield _roff(" ".join(words.split()))


def _roff(text: str) -> str:
    """Text that roff prints as it is."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
