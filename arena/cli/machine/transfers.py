"""`pkb-arena transfers`: measures the time of each way to move data between ranks on this machine."""

import shutil

import click
import msgspec

from arena.cli.diagnostics import say
from arena.cli.interrupts import run_interruptibly
from arena.cli.options import CliSession, json_option, open_session, setting_options
from arena.cli.output import print_json, print_line
from arena.errors import UsageError
from arena.machine.transfers import StoredTransfers, keep, report_lines, stored_transfers
from arena.paths import make_folder
from arena.runs.engine import Engine
from arena.setting_choice import Choice, choose_setting
from sandbox.protocol.events import AnyEvent, Setting, Waiting
from sandbox.protocol.result import PairTimes, Transfers, gigabytes_per_second


@click.command()
@setting_options
@click.option("--stored", is_flag=True, help="Print the last measurement; measure nothing.")
@json_option
def command(choice: Choice, stored: bool, as_json: bool) -> None:
    """Measure each way to move data between two ranks: copy engine, SMs, TMA, NCCL...; 2 KB to 256 MB.

    Two ranks send each other a block in turns. A time is that of one block and its signal. Models read the table, too.
    """
    session = open_session()
    setting = choose_setting(session.problem("allreduce"), choice, session.settings)
    if setting.world == 1:
        raise UsageError("transfers need at least 2 ranks", "choose --world 2 or more, or --device cpu")
    found = _stored(session, setting) if stored else run_interruptibly(_measured(session, setting))
    if as_json:
        print_json(_as_json(found))
    else:
        for line in report_lines(found, shutil.get_terminal_size().columns):
            print_line(line)


def _stored(session: CliSession, setting: Setting) -> StoredTransfers:
    found = stored_transfers(session.paths.calibrations, setting.device, setting.world)
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
        return keep(session.paths.calibrations, await engine.time_transfers(setting))


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
