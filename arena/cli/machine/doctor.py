"""`pkb-arena doctor`: reports the state of this machine."""

import click

from arena.cli.colour import green, red
from arena.cli.options import json_option
from arena.cli.output import print_json, print_line, while_it_is_read
from arena.errors import ArenaError
from arena.machine.doctor import can_run, examine
from arena.machine.finding import MachineFinding, as_script
from arena.machine.finding import fix_plan as plan_fixes
from arena.machine.transfers import transfers_finding
from arena.paths import find_paths
from arena.players.program.readiness import program_findings
from arena.runs.clock_findings import ClockResolution, clock_finding, clock_resolutions
from arena.settings import load_settings
from sandbox.protocol.verdict import ExitCode

_SIGNS = {"ok": green("✓"), "limited": "–", "missing": red("✗")}


@click.command()
@click.option("--fix-plan", is_flag=True, help="Print the commands for what is missing, as a shell script; run none.")
@json_option
@click.pass_context
def command(ctx: click.Context, fix_plan: bool, as_json: bool) -> None:
    """Say what this machine can do, and what to do about the rest.

    Exit code 3 when something is missing that every run needs.
    """
    paths = find_paths()
    findings = [*examine(), *_programs(), clock_finding(paths), transfers_finding(paths.calibrations)]
    with while_it_is_read():
        if fix_plan:
            _print_plan(findings, as_json)
        elif as_json:
            print_json({"can_run": can_run(findings), "findings": findings, "clocks": _clocks()})
        else:
            _print_findings(findings)
    ctx.exit(ExitCode.PASS if can_run(findings) else ExitCode.ENVIRONMENT)


def _programs() -> list[MachineFinding]:
    """Returns whether each installed agent program starts in its jail."""
    try:
        return list(program_findings(load_settings(find_paths())))
    except ArenaError:  # a finding already reports it
        return []


def _print_findings(findings: list[MachineFinding]) -> None:
    for finding in findings:
        print_line(f"{_SIGNS[finding.state]} {finding.name:<16} {finding.found}")
        if finding.advice:
            print_line(f"  {'':<16} → {finding.advice}")


def _print_plan(findings: list[MachineFinding], as_json: bool) -> None:
    plan = plan_fixes(findings)
    if as_json:
        print_json({"can_run": can_run(findings), "fixes": plan})
        return
    for line in as_script(plan):
        print_line(line)


def _clocks() -> list[ClockResolution]:
    """Returns the smallest detectable differences of this machine's clocks; empty if unknown."""
    try:
        return clock_resolutions(find_paths())
    except ArenaError:  # a finding already reports it
        return []
