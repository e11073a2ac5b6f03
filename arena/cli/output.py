"""Output of the command line: text or JSON on stdout, messages on stderr.

Texts contain marks for colours, which are replaced when a text is written. No other escape sequence reaches the terminal.
"""

import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click
import msgspec

from arena.errors import MachineError
from arena.records import report_text
from arena.records.run_record import RunRecord
from arena.words.headline import Headline, advice_words
from arena.words.untrusted_text import escaped_json, printable

_CODES = {"\ufdd0": click.style("", fg="green", reset=False), "\ufdd1": click.style("", fg="red", reset=False)}
_GREEN, _RED = _CODES
_BOLD, _END, _STRUCK = "\ufdd2", "\ufdd3", "\ufdd4"
_CODES |= {_BOLD: click.style("", bold=True, reset=False), _END: click.style("")}
_CODES |= {_STRUCK: click.style("", strikethrough=True, reset=False)}
_MARKS = re.compile(f"([{''.join(_CODES)}])")


def green(text: str, bold: bool = False) -> str:
    return f"{_GREEN}{_BOLD if bold else ''}{text}{_END}"


def red(text: str, bold: bool = False) -> str:
    return f"{_RED}{_BOLD if bold else ''}{text}{_END}"


def struck(text: str) -> str:
    """Returns the text struck out; without colours it is shown unchanged."""
    return f"{_STRUCK}{text}{_END}"


def rendered(text: str, colour: bool = False) -> str:
    """Returns a text ready to print: cleaned, and with colours if `colour`.

    A mark in untrusted text can only colour text up to the end of this one.
    """
    parts = _MARKS.split(text)
    codes = _CODES if colour else dict.fromkeys(_CODES, "")
    shown = "".join(codes[part] if part in codes else printable(part, tab=0) for part in parts)
    return shown + codes[_END] if len(parts) > 1 else shown


REDRAW_S = 0.1


def wants_colour(stream: TextIO) -> bool:
    """Returns whether to print in colour: on a terminal that is not dumb, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def complain(message: str, advice: str = "") -> None:
    """Prints an error message with its advice below."""
    text = f"pkb-arena: {message}"
    if advice:
        text += f"\n  {advice}"
    say(text)


def say(text: str) -> None:
    """Prints one or more lines to stderr. Ignores errors, such as a closed stderr."""
    try:
        colour = wants_colour(sys.stderr)
        click.echo(rendered(text, colour), err=True, color=colour)
    except (OSError, ValueError):
        return


class LiveLine:
    """A line on stderr that is redrawn in place. Draws nothing if stderr is not a terminal."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()
        self._width = 0
        self._drawn_at = 0.0

    def draw(self, text: str, force: bool = False) -> None:
        """Replaces the line, cut to the terminal's width. Skipped within REDRAW_S of the last draw, unless forced."""
        now = time.monotonic()
        if not self.live or (now - self._drawn_at < REDRAW_S and not force):
            return
        self._drawn_at = now
        line = rendered(text).replace("\n", " ")[: max(20, shutil.get_terminal_size().columns - 1)]
        self._write("\r" + line.ljust(self._width))
        self._width = len(line)

    def clear(self) -> None:
        """Erases the line."""
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

    def notice(self, notice: "Notice") -> None:
        """Prints a notice of an engine on a line of its own."""
        self.clear()
        complain(notice.message, notice.advice)

    def _write(self, text: str) -> None:
        if not self.live:
            return
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            self.live = False


if TYPE_CHECKING:
    from arena.runs.judge import Notice

LONGER = "--rounds or --seconds"
"""How the command line measures longer."""


class OutputLost(MachineError):
    """Stdout cannot be written: the disk is full. Without a message: its reader is gone, as after `| head`."""


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise OutputLost("") from None
    except OSError as error:
        raise OutputLost(
            f"cannot write to stdout: {error.strerror}", "what was printed is incomplete; make room, and try again"
        ) from None


@contextmanager
def while_it_is_read() -> Iterator[None]:
    """Prints as long as stdout has a reader. The command then goes on to its exit code, as after `run ... | head -1`."""
    try:
        yield
    except OutputLost as error:
        if error.message:
            raise
        drop_output()


def drop_output() -> None:
    """Redirects stdout to the null device, so that the interpreter's flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_line(text: str = "") -> None:
    """Prints a line of text.

    Raises:
        OutputLost: stdout cannot be written.
    """
    with _writing():
        colour = wants_colour(sys.stdout)
        click.echo(rendered(text, colour), color=colour)


def print_lines(lines: Iterable[str]) -> None:
    """Prints lines of text. Raises as `print_line` does."""
    for line in lines:
        print_line(line)


def flush() -> None:
    """Flushes stdout. Raises as `print_line` does."""
    with _writing():
        sys.stdout.flush()


def print_json(value: object) -> None:
    """Prints a value as one line of JSON. Numbers that JSON cannot express become null. Raises as `print_line` does."""
    with _writing():
        click.echo(escaped_json(msgspec.json.encode(value).decode()), color=False)


def print_found(as_json: bool, found: object, *lines: str) -> None:
    """Prints an object as JSON, else the lines that say the same. Raises as `print_line` does."""
    if as_json:
        print_json(found)
    else:
        print_lines(lines)


def counted(count: int, thing: str) -> str:
    """Returns a number with its thing: "1 result", "2 results"."""
    return f"{count} {thing}{'s' * (count != 1)}"


def coloured(span: report_text.Span) -> str:
    """Returns a span's text in the colour of its role."""
    role, text = span
    return green(text) if role == report_text.GOOD else red(text) if role == report_text.BAD else text


def verdict_text(verdict: str) -> str:
    """Formats a verdict: "✓ PASS" or "✗ WRONG_RESULT"."""
    role, text = report_text.verdict_span(verdict)
    return green(text, bold=True) if role == report_text.GOOD else red(text, bold=True)


def speedup_text(headline: Headline) -> str:
    """Formats a speedup: "▲ 1.42× [1.39, 1.45] faster end-to-end"."""
    return coloured(report_text.speed_span(headline.speedup, headline.outcome, headline.clock))


def compact(record: RunRecord) -> str:
    """Formats a run's result in one line."""
    told, why = report_text.told_parts(record)
    advice = advice_words(record.advice, LONGER)
    parts = [verdict_text(record.verdict), coloured(told), why, f"to reduce noise: {advice}" if advice else ""]
    if not record.passed:
        parts.append(record.detail)
    return "  ".join(filter(None, [*parts, f"({record.seconds.total:.2f} s)"]))


def print_report(record: RunRecord, overridden: Mapping[str, int] | None = None) -> None:
    """Prints a run's result as text. overridden: sizes that differ from the preset."""
    told, why = report_text.told_parts(record)
    print_line("   ".join(filter(None, [verdict_text(record.verdict), coloured(told)])))
    if why:
        print_line(why)
    print_line(f"{record.problem_id} {record.slug} · {report_text.where_words(record, overridden)}")
    if record.detail and not record.passed:
        print_line(record.detail)
    if record.failure is not None and (text := report_text.output_of(record.failure)):
        print_line(f"\n{text}\n")
    if record.rival:
        print_line(f"other kernel: {verdict_text(record.rival.verdict)}  {record.rival.detail}".rstrip())
    print_lines(f"{fact.name}: {fact.text}" for fact in report_text.facts(record, LONGER))
