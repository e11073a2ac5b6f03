"""What the doctor says about one thing."""

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    state: str
    """ "ok"; "limited": works, with less; "missing": something does not work."""
    found: str
    advice: str = ""
    """What to do about it; empty when it is ok."""
