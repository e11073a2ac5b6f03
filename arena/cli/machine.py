"""`pkb-arena doctor`, `calibrate` and `transfers`: what this machine can do, and its measurements."""

import shutil
from collections.abc import Callable, Iterable
from typing import TypeVar

import click
import msgspec

from arena.cli.display import run_interruptibly
from arena.cli.options import CliSession, json_option, open_session, setting_options
from arena.cli.output import green, print_found, print_json, print_line, red, say, while_it_is_read
from arena.errors import ArenaError, UsageError
from arena.machine.calibration import Calibration, in_units, keep, stored_as
from arena.machine.doctor import can_run, examine
from arena.machine.finding import MachineFinding, as_script
from arena.machine.finding import fix_plan as plan_fixes
from arena.machine.transfers import StoredTransfers, report_lines, transfers_finding
from arena.paths import find_paths, make_folder
from arena.players.program.jailed import program_findings
from arena.records.run_record import fields_of
from arena.runs.clock_findings import clock_finding, clock_resolutions
from arena.runs.engine import Engine
from arena.setting_choice import Choice, choose_setting
from arena.settings import load_settings
from sandbox.protocol.events import AnyEvent, Setting, Waiting
from sandbox.protocol.result import PairTimes, Transfers, gigabytes_per_second
from sandbox.protocol.verdict import ExitCode

T = TypeVar("T")
_SIGNS = {"ok": green("✓"), "limited": "–", "missing": red("✗")}


@click.command()
@click.option("--fix-plan", is_flag=True, help="Print the commands for what is missing, as a shell script; run none.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, fix_plan: bool, as_json: bool) -> None:
    """Say what this machine can do, and what to do about the rest.

    Exit code 3 when something is missing that every run needs.
    """
    paths = find_paths()
    programs = _if_readable(lambda: program_findings(load_settings(paths)))
    findings = [*examine(), *programs, clock_finding(paths), transfers_finding(paths.calibrations)]
    with while_it_is_read():
        if fix_plan:
            plan = plan_fixes(findings)
            fixes = [fields_of(each, "name state found advice") | {"commands": each.fix} for each in plan]
            print_found(as_json, {"can_run": can_run(findings), "fixes": fixes}, *as_script(plan))
        elif as_json:
            clocks = _if_readable(lambda: clock_resolutions(paths))
            print_json({"can_run": can_run(findings), "findings": findings, "clocks": clocks})
        else:
            _print_findings(findings)
    ctx.exit(ExitCode.PASS if can_run(findings) else ExitCode.ENVIRONMENT)


def _if_readable(found: Callable[[], Iterable[T]]) -> list[T]:
    """Returns what was found; nothing if a file cannot be read, which a finding already reports."""
    try:
        return list(found())
    except ArenaError:
        return []


def _print_findings(findings: list[MachineFinding]) -> None:
    for finding in findings:
        print_line(f"{_SIGNS[finding.state]} {finding.name:<16} {finding.found}")
        if finding.advice:
            print_line(f"  {'':<16} → {finding.advice}")


@click.command()
@setting_options
@json_option
def calibrate(choice: Choice, as_json: bool) -> None:
    """Measure what this machine's ranks can do at the most; a few seconds, stored for every later verdict.

    Do it once for each world size that you use, on a quiet machine.
    """
    session = open_session()
    setting = choose_setting(session.problem("allreduce"), choice, session.settings)
    make_folder(session.paths.calibrations)  # refuses before the measurement
    found = run_interruptibly(_calibrate(session, setting))
    head = f"{found.device}, {found.world} ranks, per rank with all of them busy ({found.seconds:.1f} s):"
    print_found(as_json, found, head, *(f"  {name:18} {_figure(name, value)}" for name, value in found.peaks.items()))


async def _calibrate(session: CliSession, setting: Setting) -> Calibration:
    async with Engine(session.paths) as engine:
        return keep(Calibration, session.paths.calibrations, await engine.calibrate(setting))


def _figure(name: str, value: float) -> str:
    figure, unit = in_units(name, value)
    digits = {"GB/s": 2, "ms": 1}.get(unit, 3)
    return f"{figure:10.{digits}f} {unit}"


@click.command()
@setting_options
@click.option("--stored", is_flag=True, help="Print the last measurement; measure nothing.")
@json_option
def transfers(choice: Choice, stored: bool, as_json: bool) -> None:
    """Measure each way to move data between two ranks: copy engine, SMs, TMA, NCCL...; 2 KB to 256 MB.

    Two ranks send each other a block in turns. A time is that of one block and its signal. Models read the table, too.
    """
    session = open_session()
    setting = choose_setting(session.problem("allreduce"), choice, session.settings)
    if setting.world == 1:
        raise UsageError("transfers need at least 2 ranks", "choose --world 2 or more, or --device cpu")
    found = _stored(session, setting) if stored else run_interruptibly(_measured(session, setting))
    print_found(as_json, _as_json(found), *report_lines(found, shutil.get_terminal_size().columns))


def _stored(session: CliSession, setting: Setting) -> StoredTransfers:
    found = stored_as(StoredTransfers, session.paths.calibrations, setting.device, setting.world)
    if found is None:
        raise UsageError(
            f"nothing was measured here with {setting.world} ranks on {setting.device}", "run `pkb-arena transfers`"
        )
    return found


async def _measured(session: CliSession, setting: Setting) -> StoredTransfers:
    def listen(event: AnyEvent) -> None:
        if isinstance(event, Waiting):
            say(f"Waiting: another run is timing ({event.words})")

    make_folder(session.paths.calibrations)  # refuses before the measurement
    async with Engine(session.paths) as engine:
        engine.subscribe(listen)
        return keep(StoredTransfers, session.paths.calibrations, await engine.time_transfers(setting))


def _as_json(found: StoredTransfers) -> dict[str, object]:
    pairs = [
        {"ranks": pair.ranks, "us": pair.us, "gb_s": _rates(found.transfers, pair)} for pair in found.transfers.pairs
    ]
    rest: dict[str, object] = msgspec.structs.asdict(found)
    del rest["transfers"]
    return {**rest, "sizes": found.transfers.sizes, "pairs": pairs, "absent": found.transfers.absent}


def _rates(transfers: Transfers, pair: PairTimes) -> dict[str, list[float]]:
    return {
        way: [gigabytes_per_second(size, us) for size, us in zip(transfers.sizes, times, strict=True)]
        for way, times in pair.us.items()
    }
