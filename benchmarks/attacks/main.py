"""`python -m benchmarks attacks`: the attack suite on this machine."""

import math
import os
from collections import Counter
from pathlib import Path

import click
import msgspec

from arena.cli.display import run_interruptibly
from arena.cli.options import json_option, number_option
from arena.cli.output import print_json, print_lines, say
from arena.errors import RunCancelled, RunRefused, UsageError
from arena.machine.facts import is_jail, visible_gpus
from arena.paths import ROOT, write_atomically
from arena.runs.engine import temporary_engine
from arena.runs.judge import Judge, judge_to_end
from arena.setting_choice import Choice
from benchmarks.attacks.attack_bait import Bait
from benchmarks.attacks.attack_suite import (
    BACKEND_SETUPS,
    MOST_TRIES,
    TWIN,
    AttackKernel,
    AttackOutcome,
    expected_text,
    harmful,
    read_catalogue,
    read_kernels,
    summary,
    table,
    with_backend,
)
from benchmarks.attacks.fuzzing import fuzz
from benchmarks.rows import request_of
from problems.catalogue import load_catalogue
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import AnyEvent, Ready
from sandbox.protocol.verdict import ExitCode

SUITE = ROOT / "tests" / "attacks"
BEGIN, END = "<!-- attacks: begin -->", "<!-- attacks: end -->"
ROUNDS = 3
NOT_APPLICABLE = "not applicable"


@click.command()
@click.option(
    "--only", "ids", multiple=True, metavar="ID", help=f"Only this attack, such as A3, or {TWIN}; repeatable."
)
@number_option(
    "--repetitions", within=(1, math.inf), default=1, help="Runs of each kernel. It is as expected when every one is."
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where kernels run whose headers name no device.",
)
@click.option(
    "--preset",
    type=click.Choice(["tiny", "paper", "production"]),
    default="tiny",
    show_default=True,
    help="The sizes of every kernel's problem, unless its header names others.",
)
@click.option(
    "--backend",
    type=click.Choice([*BACKEND_SETUPS]),
    help="Every kernel sets this backend up first, so that its world has what it needs. On GPUs.",
)
@click.option(
    "--write",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the table into FILE, between its two markers: tests/attacks/RESULTS.md has them.",
)
@number_option(
    "--fuzz",
    "seconds",
    within=(1e-6, math.inf),
    kind=float,
    metavar="SECONDS",
    help="Judge kernels that combine the suite's tricks at random, for this long.",
)
@click.option(
    "--seed",
    type=int,
    metavar="N",
    default=0,
    show_default=True,
    help="With --fuzz: the same seed makes the same kernels.",
)
@number_option("--world", within=(1, math.inf), default=2, help="With --fuzz: ranks.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    ids: tuple[str, ...],
    repetitions: int,
    device: str,
    preset: str,
    backend: str | None,
    page: Path | None,
    seconds: float | None,
    seed: int,
    world: int,
    as_json: bool,
) -> None:
    """Judge every kernel of the attack suite and compare its verdict with what is expected.

    With --fuzz: judge kernels made of tricks, and report each verdict that is not deserved. Needs a checkout of pkb-arena. Exit
    code 1 when anything is not as expected.
    """
    if seconds is not None:
        if ids or page is not None:
            raise UsageError("--fuzz makes its own kernels: it goes without --only and --write")
        tally = run_interruptibly(fuzz(SUITE, seconds, seed, world))
        if as_json:
            print_json(msgspec.to_builtins(tally))
        else:
            print_lines(tally.lines())
        ctx.exit(ExitCode.KERNEL_FAILED if tally.undeserved else ExitCode.PASS)
    catalogue = read_catalogue(SUITE)
    if unknown := set(ids) - {TWIN, *(attack.id for attack in catalogue)}:
        raise UsageError(
            f"there is no attack {min(unknown)}", f"their ids go from {catalogue[0].id} to {catalogue[-1].id}"
        )
    if page is not None:
        _parts(page)  # reports an error before minutes are spent
    kernels = [kernel for kernel in read_kernels(SUITE) if not ids or kernel.attack in ids]
    kernels = [
        msgspec.structs.replace(kernel, runs=kernel.runs * repetitions, device=kernel.device or device)
        for kernel in kernels
    ]
    if backend is not None:
        kernels = [with_backend(kernel, backend) for kernel in kernels]
    outcomes, jail = run_interruptibly(_judge_all(kernels, harmful(catalogue), preset))
    tried = [attack for attack in catalogue if not ids or attack.id in ids]
    lines = [f"Jail profile `{jail}`. {summary(tried, outcomes)}.", "", *table(tried, outcomes)]
    if page is not None:
        before, after = _parts(page)
        text = "\n".join([before + BEGIN, "", *lines, "", END + after])
        write_atomically(page, text.encode())
    if as_json:
        print_json({"jail": jail, "summary": summary(tried, outcomes), "outcomes": msgspec.to_builtins(outcomes)})
    else:
        print_lines(lines)
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


async def _judge_all(
    kernels: list[AttackKernel], needing_jail: set[str], preset: str
) -> tuple[list[AttackOutcome], str]:
    baseline = load_catalogue().find("allreduce").folder / "baseline.py"
    bait = Bait(watched=(baseline,))
    said: list[AnyEvent] = []
    ready: list[Ready] = []

    def listen(event: AnyEvent) -> None:
        said.append(event)
        if isinstance(event, Ready):
            ready.append(event)

    try:
        async with temporary_engine(bait.environment) as engine:
            engine.subscribe(listen)
            await engine.start()
            outcomes = []
            for kernel in kernels:
                said.clear()
                needs_jail = kernel.attack in needing_jail
                outcomes.append(await _judge(engine, kernel, preset, needs_jail, bait, ready, said))
                say(f"{kernel.name}: {outcomes[-1].verdict} {'' if outcomes[-1].as_expected else '✗'}")
        if not bait.all_gone():
            outcomes.append(AttackOutcome("the referee", TWIN, "", "ended", harm=("processes are left",)))
    finally:
        bait.close()
    return outcomes, engine.jail


async def _judge(
    judge: Judge,
    kernel: AttackKernel,
    preset: str,
    needs_jail: bool,
    bait: Bait,
    ready: list[Ready],
    said: list[AnyEvent],
) -> AttackOutcome:
    outcome = AttackOutcome(kernel.name, kernel.attack, expected_text(kernel), NOT_APPLICABLE)
    lacks_gpus = kind_of(kernel.device).on_gpus and not visible_gpus()
    if lacks_gpus or (needs_jail and not is_jail(judge.jail)):
        return outcome
    choice = Choice(preset=kernel.preset or preset, device=kernel.device)
    surprise, jailed = "", False
    verdicts: Counter[str] = Counter()
    for _ in range(kernel.runs):
        for _ in range(MOST_TRIES):
            source = bait.fill(kernel.source, ready[-1].pid if ready else os.getpid())
            request = request_of(kernel.problem, choice, f"{kernel.name}.py", source, ROUNDS)
            try:
                result = (await judge_to_end(judge, request)).result
            except (RunRefused, RunCancelled) as error:
                return msgspec.structs.replace(outcome, verdict=type(error).__name__, surprise=error.message)
            if not kernel.had_no_chance(result):
                break
        verdicts[result.verdict.value] += 1
        surprise = surprise or kernel.surprise(result)
        jailed = is_jail(result.jail)
    counted = len(verdicts) > 1
    return msgspec.structs.replace(
        outcome,
        verdict=", ".join(f"{verdict} {count}" if counted else verdict for verdict, count in verdicts.most_common()),
        surprise=surprise,
        harm=bait.harm(said, jailed=jailed, device=kernel.device),
    )
