"""`pkb-arena duel` lets two players duel at one problem, without the app; `pkb-arena duels` prints the duel board."""

import time
from pathlib import Path

import click

from arena.cli import options
from arena.cli.display import run_interruptibly
from arena.cli.output import LiveLine, complain, print_found, print_json, print_line, say, struck, while_it_is_read
from arena.duel import events
from arena.duel.card import duel_report, result_words, speed_words, svg_card, text_card, unrated_words
from arena.duel.events import AnyDuelEvent, DuelHeader
from arena.duel.journal import ALL, DuelRecord, Rating, abandoned_duels, damage, ratings, read_duel, read_duels
from arena.duel.match import Match, Players, duel_players, new_header
from arena.duel.state import DuelState
from arena.errors import UsageError
from arena.paths import require_writable, write_named_file
from arena.players.player import PlayerKind, PlayerSetup, Task
from arena.records.report_text import verdict_span
from arena.records.voids import DAMAGED_ADVICE, read_voids
from arena.runs.engine import Engine
from arena.setting_choice import Choice, choose_setting
from problems.specification import CATEGORIES, Problem
from sandbox.protocol.verdict import ExitCode, Verdict

_LEFT = {"done": "is done", "agreed": "agrees to end", "gave up": "gives up", "time": "stops: time is over"}


def duel_line(header: events.DuelHeader, event: events.AnyDuelEvent) -> str:
    """Formats an event in one line with its time; empty for events that are not shown."""
    words = _words(header, event)
    return f"{int(event.at) // 60:02d}:{event.at % 60:04.1f}  {words}" if words else ""


def _words(header: events.DuelHeader, event: events.AnyDuelEvent) -> str:
    match event:
        case events.Submitted():
            lines = len(event.source.splitlines())
            return f"{_who(header, event)} submits kernel {event.attempt} ({lines} lines)"
        case events.KernelJudged():
            return f"{_who(header, event)} kernel {event.attempt}: {_verdict(event)}"
        case events.Said():
            return f"{_who(header, event)}: {event.text}"
        case events.Left():
            return f"{_who(header, event)} {_LEFT.get(event.reason, f'leaves: {event.reason}')}"
        case events.Paused():
            return "paused"
        case events.Resumed():
            return "resumed"
        case events.FinalBegan():
            left, right = header.left.name, header.right.name
            return f"final: kernel {event.left} of {left} against kernel {event.right} of {right}"
        case events.FinalMeasured() if event.round == event.rounds:
            rounds = "1 round" if event.round == 1 else f"{event.round} rounds"
            return f"final: {speed_words(event.speedup, event.clock)} after {rounds}"
        case events.Abandoned():
            return f"abandoned: {event.reason}"
        case events.DuelEnded():
            return "decided"
        case _:
            return ""


def _who(header: events.DuelHeader, event: events.Submitted | events.KernelJudged | events.Said | events.Left) -> str:
    return f"{header.player(event.side).name} ({event.side})"


def _verdict(event: events.KernelJudged) -> str:
    speed = speed_words(event.speedup, event.clock) if event.speedup is not None else ""
    return f"{verdict_span(event.verdict)[1]}  {speed if event.verdict is Verdict.PASS else event.detail}".rstrip()


def tell_duel(path: Path, header: events.DuelHeader, speed: float | None, as_json: bool) -> None:
    """Prints a duel's events. speed: divides the pauses between events; None: no pauses."""
    state = DuelState(header)
    if as_json:
        print_json(header)
    for event in read_duel(path):
        if speed is not None:
            time.sleep(max(0.0, event.at - state.at) / speed)
        state.apply(event)
        if as_json:
            print_json(event)
        elif line := duel_line(header, event):
            print_line(line)
    if state.ended is not None and not as_json:
        print_line()
        print_line(text_card(header, state.ended))


ROUNDS, ROUNDS_WITH_CLOCK = 3, 20
"""Kernels that a model may submit by default."""
_PLAYER = (
    "A kernel file, `house`, `baseline`, a baseline variant as for `run`, `file:DIR`, `model:NAME` (its answers are"
    " independent), or `agent:NAME`: a model that gets its verdicts, or an agent program."
)


@click.command()
@options.problem_argument
@click.option("--left", required=True, metavar="P", shell_complete=options.complete_kernel, help=_PLAYER)
@click.option(
    "--right", required=True, metavar="P", shell_complete=options.complete_kernel, help="The same for the other player."
)
@click.option("--left-name", default="you", show_default=True, metavar="NAME", help="Player of the file --left.")
@click.option("--right-name", default="guest", show_default=True, metavar="NAME", help="Player of the file --right.")
@options.number_option(
    "--minutes",
    within=(0.05, 24 * 60),
    kind=float,
    metavar="M",
    help="Play with a clock: every save of a file is submitted. [default: no clock; a file is submitted once]",
)
@options.number_option(
    "--rounds",
    within=(1, 1000),
    help=f"Kernels that a model may submit. [default: {ROUNDS}, with a clock {ROUNDS_WITH_CLOCK}]",
)
@options.budget_option
@options.file_option("--svg", help="Write the result card to this file.")
@options.unsafe_option
@options.setting_options
@options.json_option
@click.pass_context
def duel(
    ctx: click.Context,
    problem: str,
    left: str,
    right: str,
    left_name: str,
    right_name: str,
    minutes: float | None,
    rounds: int | None,
    budget_usd: float | None,
    svg: Path | None,
    unsafe: bool,
    choice: Choice,
    as_json: bool,
) -> None:
    """Let two players duel at PROBLEM: who writes the faster kernel?

    Submissions are judged one at a time. In the final the best kernels of both players run against each other on
    fresh inputs. A player wins if the interval excludes 1, else it is a draw.

    Exit code 0: decided, or a draw. 1: no player has a correct kernel.
    """
    if svg is not None:
        require_writable(svg)
    session = options.open_session()
    found = session.problem(problem)
    setting = choose_setting(found, choice, session.settings)
    setup = PlayerSetup(session.settings, session.catalogue, session.paths)
    players = duel_players((left, right), (left_name, right_name), Task(found, setting), setup, budget_usd)
    if budget_usd is not None and all(player.model is None for player in players):
        raise UsageError(
            "--budget limits what models and agent programs spend, and neither player spends anything", "leave it out"
        )
    if players[0].name == players[1].name and players[0].name.kind is PlayerKind.USER:
        raise UsageError(f"both players are called {left_name!r}", "tell them apart with --left-name and --right-name")
    rounds = rounds or (ROUNDS if minutes is None else ROUNDS_WITH_CLOCK)
    header = new_header(found, setting, players, minutes, rounds, budget_usd)
    state = run_interruptibly(_play(session, found, header, players, unsafe))
    assert state.ended is not None
    if svg is not None:
        write_named_file(svg, svg_card(state))
    with while_it_is_read():
        print_found(as_json, duel_report(state), text_card(header, state.ended))
    right_kernel = state.ended.left.attempt or state.ended.right.attempt
    ctx.exit(ExitCode.PASS if right_kernel else ExitCode.KERNEL_FAILED)


async def _play(
    session: options.CliSession, problem: Problem, header: DuelHeader, players: Players, unsafe: bool
) -> DuelState:
    def tell(event: AnyDuelEvent) -> None:
        if line := duel_line(header, event):
            say(line)

    say(f"duel {header.duel_id}")
    async with Engine(session.paths, notify=LiveLine().notice) as engine:
        match = Match(engine, session.paths, problem, header, players, budget_s=session.settings.seconds, unsafe=unsafe)
        match.listeners.append(tell)
        await match.play()
        return match.state


SHOWN = 20


@click.command()
@click.option("--category", metavar="C", default=ALL, show_default=True, help="Ratings from duels of one category.")
@options.json_option
@click.pass_context
def duels(ctx: click.Context, category: str, as_json: bool) -> None:
    """Show ratings from all duels (Bradley-Terry, 95 % intervals), and the last duels.

    A duel that was abandoned after a verdict is listed with what stood, and is not rated.

    A file that is damaged is named and left out; the exit code is 3 then.
    """
    if category not in (ALL, *CATEGORIES):
        raise UsageError(f"there is no category {category!r}", f"choose from {', '.join(CATEGORIES)}, {ALL}")
    paths = options.open_session().paths
    voids = read_voids(paths.voids)
    records, damaged = read_duels(paths.duels, voids)
    abandoned = abandoned_duels(paths.duels)
    found = ratings(records)
    if as_json:
        duels = [{"header": each.header, "ended": each.ended, "voided": each.voided} for each in records]
        undecided = [{"header": each.header, "abandoned": result_words(each)} for each in abandoned]
        print_json({"ratings": found, "duels": duels, "abandoned": undecided})
    else:
        _print([*records, *abandoned], found, category)
    if voids.damaged:
        complain(voids.damaged, DAMAGED_ADVICE)
    for path, error in damaged.items():
        fault = damage(path, error)
        complain(fault.message, fault.advice)
    if voids.damaged or damaged:
        ctx.exit(ExitCode.ENVIRONMENT)


def _print(records: list[DuelRecord], found: list[Rating], category: str) -> None:
    duels = sorted(records, key=lambda duel: duel.header.created)
    if not duels:
        print_line("No duel was played yet: `pkb-arena duel 1 --left house --right baseline` is a first one.")
        return
    shown = [rating for rating in found if rating.category == category]
    if not shown:
        print_line(f"No duel in the category {category} yet.")
    for place, rating in enumerate(shown, 1):
        tally = f"{rating.won} won, {rating.drawn} drawn, {rating.lost} lost"
        print_line(f"{place:>3}  {rating.player:<28} {rating.rating:6.0f} ± {rating.plus_minus:<4.0f} {tally}")
    print_line()
    for record in reversed(duels[-SHOWN:]):
        header = record.header
        when = time.strftime("%d %b %H:%M", time.localtime(header.created))
        names = f"{header.left.name} vs {header.right.name}"
        unrated = unrated_words(header, record.ended) if record.ended is not None else ""
        outcome = "; ".join(filter(None, [result_words(record), unrated]))
        line = f"{when}  {header.problem_id:>3} {header.slug:<24} {names}: {outcome}"
        print_line(f"{struck(line)}  {record.voided.words}" if record.voided is not None else line)
        name = record.path.stem if record.path is not None else header.duel_id
        print_line(f"              `pkb-arena replay {name}`")
