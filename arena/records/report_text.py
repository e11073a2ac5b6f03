"""What a result says, in words."""

from arena.words.untrusted_text import printable
from sandbox.protocol.events import Failure


def output_of(failure: Failure) -> str:
    """Returns the traceback or the compiler's output, without a first or last line that repeats the message."""
    message = printable(failure.message).strip()
    lines = printable(failure.text).strip("\n").rstrip().split("\n")
    first, last = lines[0].strip(), lines[-1].strip()
    # A message that was too long has lost its end. Then the first line repeats the traceback's last line.
    if len(lines) > 1 and first and (message.endswith(first) or first == last):
        lines = lines[1:]
    if lines[-1].strip() and message.endswith(lines[-1].strip()):
        lines = lines[:-1]
    return "\n".join(lines).strip("\n")
