"""One finding of the doctor."""

import msgspec


class MachineFinding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    state: str
    """ "ok"; "limited": works, with less; "missing": something does not work."""
    found: str
    advice: str = ""
    """Advice; empty when it is ok."""
    fix: tuple[str, ...] = ()
    """Command lines that mend it, for a person to run; empty when it is ok, or where commands cannot."""


def ok(name: str, found: str) -> MachineFinding:
    """Nothing is to be done."""
    return MachineFinding(name, "ok", found)


def limited(name: str, found: str, advice: str, *fix: str) -> MachineFinding:
    """Works, with less."""
    return MachineFinding(name, "limited", found, advice, fix)


def missing(name: str, found: str, advice: str, *fix: str) -> MachineFinding:
    """Something does not work."""
    return MachineFinding(name, "missing", found, advice, fix)
