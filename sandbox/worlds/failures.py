"""Failures of a world: a rank fails, a rank does not answer, or the harness fails."""

from sandbox.protocol.frames import Kind


class WorldFailed(Exception):
    """A rank reported a failure, died, or broke the protocol."""

    def __init__(self, kind: str, rank: int, line: int = 0, text: str = "", status: int = 0) -> None:
        super().__init__(f"rank {rank} ended" if kind == "DIED" else f"rank {rank}: {kind} {_first_words(text)[:500]}")
        self.kind = kind
        """A Kind's name, or "DIED", "PROTOCOL", "FLOOD"."""
        self.rank = rank
        self.line = line
        self.text = text
        self.status = status
        """The wait status, for DIED."""


def _first_words(text: str) -> str:
    """The text; for a traceback the exception, which is its first line that is not indented."""
    lines = text.strip().splitlines()
    if not lines or not lines[0].startswith("Traceback "):
        return text
    return next((line for line in lines[1:] if line and not line.startswith(" ")), text)


class Deadline(Exception):
    """Not every rank answered in time."""

    def __init__(self, ranks: list[int], kind: Kind) -> None:
        """kind: of the missing answer."""
        super().__init__(f"waiting for ranks {ranks}")
        self.ranks = ranks
        self.kind = kind


class OutputsLost(Exception):
    """A kernel wrote over a result that was not copied yet, in memory that it had not been seen to use again."""


class HarnessFailed(Exception):
    """The oracle world, a reference world, the machine or the harness failed. The kernel is not at fault."""

    def __init__(self, message: str, advice: str = "") -> None:
        """advice: what to do, instead of the usual advice."""
        super().__init__(message)
        self.advice = advice


def machine_too_busy(what: str) -> HarnessFailed:
    """The failure where processes waited for cores that other programs used. what: the part that could not go on."""
    advice = "This says nothing about the kernel. Run it again when fewer programs run on this machine."
    return HarnessFailed(f"this machine is too busy: other programs use nearly all of its cores, and {what}", advice)
