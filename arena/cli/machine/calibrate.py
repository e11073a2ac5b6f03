"""`pkb-arena calibrate`: measures this machine's peaks for the roofline."""

import click

from arena.cli.interrupts import run_interruptibly
from arena.cli.options import CliSession, json_option, open_session, setting_options
from arena.cli.output import print_json, print_line
from arena.machine.calibration import Calibration, in_units, keep
from arena.paths import make_folder
from arena.runs.engine import Engine
from arena.setting_choice import Choice, choose_setting
from sandbox.protocol.events import Setting


@click.command()
@setting_options
@json_option
def command(choice: Choice, as_json: bool) -> None:
    """Measure what this machine's ranks can do at the most; a few seconds, stored for every later verdict.

    Do it once for each world size that you use, on a quiet machine.
    """
    session = open_session()
    setting = choose_setting(session.problem("allreduce"), choice, session.settings)
    make_folder(session.paths.calibrations)  # refuses before the measurement
    found = run_interruptibly(_calibrate(session, setting))
    if as_json:
        print_json(found)
        return
    print_line(f"{found.device}, {found.world} ranks, per rank with all of them busy ({found.seconds:.1f} s):")
    for name, value in found.peaks.items():
        print_line(f"  {name:18} {_figure(name, value)}")


async def _calibrate(session: CliSession, setting: Setting) -> Calibration:
    async with Engine(session.paths) as engine:
        return keep(session.paths.calibrations, await engine.calibrate(setting))


def _figure(name: str, value: float) -> str:
    figure, unit = in_units(name, value)
    digits = {"GB/s": 2, "ms": 1}.get(unit, 3)
    return f"{figure:10.{digits}f} {unit}"
