"""The findings of the doctor, and their remedies as command lines that a person reads and then runs."""

from collections.abc import Iterator, Sequence

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


class Fix(msgspec.Struct, frozen=True):
    """What to do about one finding that is not ok."""

    name: str
    state: str
    found: str
    commands: list[str]
    """Command lines, in order; empty where a person has to decide, as `advice` says."""
    advice: str


def fix_plan(findings: Sequence[MachineFinding]) -> list[Fix]:
    """A fix for each finding that asks for something: what every run needs first, then what has commands, then the rest.

    A command that several findings ask for is in the first alone.
    """
    wanting = [finding for finding in findings if finding.state != "ok"]
    wanting.sort(key=lambda finding: (finding.state != "missing", not finding.fix))
    seen: set[str] = set()
    plan = []
    for finding in wanting:
        commands = [command for command in finding.fix if command not in seen]
        seen.update(commands)
        if finding.fix and not commands:
            continue
        plan.append(Fix(finding.name, finding.state, finding.found, commands, finding.advice))
    return plan


def as_script(plan: Sequence[Fix]) -> Iterator[str]:
    """The plan as lines of a shell script: reasons are comments."""
    if not plan:
        yield "# Nothing is missing here."
        return
    yield "# Nothing of this was done. Read it, and run what you want."
    for fix in plan:
        yield ""
        yield f"# {fix.name}: {one_line(fix.found)}"
        if fix.commands:
            yield from fix.commands
        else:
            yield f"#   by hand: {one_line(fix.advice)}"


def one_line(text: str) -> str:
    """Text without line ends: what a machine reports never leaves its comment."""
    return " ".join(text.split())
