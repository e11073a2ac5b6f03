"""The doctor's findings, and command lines that fix them, for the user to read and then run."""

from collections.abc import Iterator, Sequence

import msgspec


class MachineFinding(msgspec.Struct, frozen=True):
    """The result of one check of the doctor."""

    name: str
    state: str
    """ "ok"; "limited": works with restrictions; "missing": something does not work."""
    found: str
    advice: str = ""
    """What to do; empty if the state is "ok"."""
    fix: tuple[str, ...] = ()
    """Command lines that fix it, for the user to run; empty if it is ok or if no command can fix it."""


def ok(name: str, found: str) -> MachineFinding:
    """Returns a finding that needs no action."""
    return MachineFinding(name, "ok", found)


def limited(name: str, found: str, advice: str, *fix: str) -> MachineFinding:
    """Returns a finding about something that works with restrictions."""
    return MachineFinding(name, "limited", found, advice, fix)


def missing(name: str, found: str, advice: str, *fix: str) -> MachineFinding:
    """Returns a finding about something that does not work."""
    return MachineFinding(name, "missing", found, advice, fix)


class Fix(msgspec.Struct, frozen=True):
    """The remedy for one finding that is not ok."""

    name: str
    state: str
    found: str
    commands: list[str]
    """Command lines, in order; empty if the user has to act as `advice` says."""
    advice: str


def fix_plan(findings: Sequence[MachineFinding]) -> list[Fix]:
    """Returns a fix for each finding that is not ok.

    Order: first what every run needs, then fixes with commands, then the rest. If several findings need the same
    command, only the first fix has it.
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
    """Yields the plan as lines of a shell script, with the reasons as comments."""
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
    """Joins lines into one, so that text reported by a machine cannot leave its shell comment."""
    return " ".join(text.split())
