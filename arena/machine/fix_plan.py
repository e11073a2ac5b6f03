"""Remedies for the doctor's findings, as command lines that a person reads and then runs. Nothing is done here."""

from collections.abc import Iterator, Sequence

import msgspec

from arena.machine.finding import MachineFinding


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
