"""The comparison of one iteration on one rank, as a trusted rank sends it to the referee."""

import msgspec

from sandbox.protocol.events import OutputError
from sandbox.protocol.verdict import Verdict


class OutputFinding(msgspec.Struct, frozen=True):
    """One rank's comparison of one iteration."""

    verdict: Verdict
    message: str = ""
    """The reason if no figures were computed: the structure is wrong, or nothing was written."""
    output: str | None = None
    """The output that `message` is about."""
    outputs: list[OutputError] = []
    """Figures of every output, in canonical order; empty if there is a `message`."""
    paper: bool = False
    """Whether upstream's rule accepts all outputs."""
