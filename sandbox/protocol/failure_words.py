"""A failure in words."""

import re

from sandbox.protocol.result import Failure


def failure_words(failure: Failure) -> str:
    """The failure in one line: phase, rank, message, place, values and advice. Its texts come from an untrusted process."""
    where = failure.phase if failure.rank is None else f"{failure.phase}, rank {failure.rank}"
    parts = [f"{where}: {failure.message.rstrip('.')}"]
    if failure.line is not None and not names_line(failure.message, failure.line):
        parts.append(f"line {failure.line}")
    if failure.index is not None:
        index = ", ".join(map(str, failure.index))
        parts.append(f"first wrong {failure.output or 'output'}[{index}]")
    if failure.expected is not None or failure.got is not None:
        parts.append(f"expected {failure.expected}, got {failure.got}")
    words = "; ".join(parts) + (f". {failure.advice}" if failure.advice else "")
    return " ".join(words.split())


def names_line(text: str, line: int) -> bool:
    """Whether a text already names the line, in words or as a compiler does ("kernel.py:6: ...")."""
    return re.search(rf"\bline {line}\b|[A-Za-z_]:{line}:", text) is not None
