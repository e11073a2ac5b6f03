"""`pkb-arena attacks`: what happens to kernels that cheat or harm, on this machine."""

import os
import tempfile
from pathlib import Path

import click
import msgspec

from arena.atomic_file import write_atomically
from arena.attack_bait import Bait
from arena.attack_suite import (
    TWIN,
    AttackKernel,
    Outcome,
    expected_text,
    harmful,
    read_catalogue,
    read_kernels,
    summary,
    table,
)
from arena.cli.diagnostics import say
from arena.cli.interrupts import run_interruptibly
from arena.cli.options import json_option
from arena.cli.output import print_json, print_line
from arena.engine import Engine
from arena.errors import UsageError
from arena.jail_policy import is_jail
from arena.machine import visible_gpus
from arena.own_modules import ROOT
from arena.paths import Paths
from arena.run_request import RunRequest
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from sandbox.events import AnyEvent, Finished, Ready, encode
from sandbox.verdict import ExitCode

SUITE = ROOT / "tests" / "attacks"
BEGIN, END = "<!-- attacks: begin -->", "<!-- attacks: end -->"
ROUNDS = 3
NOT_APPLICABLE = "not applicable"


@click.command()
@click.option("--only", "ids", multiple=True, metavar="ID", help="Only this attack, such as A3; repeatable.")
@click.option(
    "--write",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Put the table into FILE, between its two markers.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, ids: tuple[str, ...], page: Path | None, as_json: bool) -> None:
    """Judge every kernel of the attack suite and compare its verdict with what is expected.

    Needs a checkout of pkb-arena. Exit code 1 when anything is not as expected.
    """
    catalogue = read_catalogue(SUITE)
    if unknown := set(ids) - {attack.id for attack in catalogue}:
        raise UsageError(
            f"there is no attack {min(unknown)}", f"there are {catalogue[0].id} to {catalogue[-1].id}"
        )
    if page is not None:
        _parts(page)  # said before minutes are spent
    kernels = [kernel for kernel in read_kernels(SUITE) if not ids or kernel.attack in ids]
    outcomes, jail = run_interruptibly(_judge_all(kernels, harmful(catalogue)))
    lines = [f"Jail profile `{jail}`. {summary(catalogue, outcomes)}.", "", *table(catalogue, outcomes)]
    if page is not None:
        before, after = _parts(page)
        text = "\n".join([before + BEGIN, "", *lines, "", END + after])
        write_atomically(page, text.encode())
    if as_json:
        print_json(
            {"jail": jail, "summary": summary(catalogue, outcomes), "outcomes": msgspec.to_builtins(outcomes)}
        )
    else:
        for line in lines:
            print_line(line)
    ctx.exit(ExitCode.PASS if all(each.as_expected for each in outcomes) else ExitCode.KERNEL_FAILED)


def _parts(page: Path) -> tuple[str, str]:
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {page}: {error.strerror}") from None
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise UsageError(f"{page} has no place for the table", f"put {BEGIN} and {END} where it belongs")
    return before, after


async def _judge_all(kernels: list[AttackKernel], needing_walls: set[str]) -> tuple[list[Outcome], str]:
    baseline = load_catalogue().find("allreduce").folder / "baseline.py"
    bait = Bait(watched=(baseline,))
    os.environ.update(bait.environment)
    said: list[AnyEvent] = []
    ready: list[Ready] = []

    def listen(event: AnyEvent) -> None:
        said.append(event)
        if isinstance(event, Ready):
            ready.append(event)

    with tempfile.TemporaryDirectory(prefix="pkb-attacks-") as folder:
        own = Path(folder)
        try:
            async with Engine(Paths(own / "config", own / "data", own / "state")) as engine:
                engine.subscribe(listen)
                await engine.start()
                outcomes = []
                for kernel in kernels:
                    said.clear()
                    needs_walls = kernel.attack in needing_walls
                    outcomes.append(await _judge(engine, kernel, needs_walls, bait, ready, said))
                    say(f"{kernel.name}: {outcomes[-1].verdict} {'' if outcomes[-1].as_expected else '✗'}")
            if not bait.all_gone():
                outcomes.append(Outcome("the referee", TWIN, "", "ended", harm=("processes are left",)))
        finally:
            bait.close()
    return outcomes, engine.jail


async def _judge(
    engine: Engine,
    kernel: AttackKernel,
    needs_walls: bool,
    bait: Bait,
    ready: list[Ready],
    said: list[AnyEvent],
) -> Outcome:
    outcome = Outcome(kernel.name, kernel.attack, expected_text(kernel), NOT_APPLICABLE)
    if (kernel.device == "cuda" and not visible_gpus()) or (needs_walls and not is_jail(engine.jail)):
        return outcome
    problem = load_catalogue().find(kernel.problem)
    choice = Choice(preset="tiny", device=kernel.device)
    surprise, verdict, walled = "", "", False
    for _ in range(kernel.runs):
        source = bait.fill(kernel.source, ready[-1].pid if ready else os.getpid())
        request = RunRequest(
            problem=problem,
            setting=choose_setting(problem, choice, Settings()),
            kernel_name=f"{kernel.name}.py",
            source=source,
            rounds=ROUNDS,
        )
        end = await engine.wait(await engine.run(request))
        if not isinstance(end, Finished):
            return msgspec.structs.replace(outcome, verdict=type(end).__name__, surprise=str(end))
        verdict = end.result.verdict.value
        surprise = surprise or kernel.surprise(end.result)
        walled = is_jail(end.result.jail)
    text = b"".join(map(encode, said)).decode(errors="replace")
    return msgspec.structs.replace(
        outcome, verdict=verdict, surprise=surprise, harm=bait.harm(text, walled=walled)
    )
