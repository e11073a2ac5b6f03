"""`pkb-arena duels`: prints the duel board."""

import time

import click

from arena.cli.colour import struck
from arena.cli.diagnostics import complain
from arena.cli.options import json_option, open_session
from arena.cli.output import print_json, print_line
from arena.duel.card import abandoned_words, unrated_words, winner_words
from arena.duel.journal import AbandonedDuel, DuelRecord, abandoned_duels, damage, read_duels
from arena.duel.ratings import ALL, Rating, ratings
from arena.errors import UsageError
from arena.records.voids import DAMAGED_ADVICE, read_voids
from problems.specification import CATEGORIES
from sandbox.protocol.verdict import ExitCode

SHOWN = 20


@click.command()
@click.option("--category", metavar="C", default=ALL, show_default=True, help="Ratings from duels of one category.")
@json_option
@click.pass_context
def command(ctx: click.Context, category: str, as_json: bool) -> None:
    """Show ratings from all duels (Bradley-Terry, 95 % intervals), and the last duels.

    A duel that was abandoned after a verdict is listed with what stood, and is not rated.

    A file that is damaged is named and left out; the exit code is 3 then.
    """
    if category not in (ALL, *CATEGORIES):
        raise UsageError(f"there is no category {category!r}", f"choose from {', '.join(CATEGORIES)}, {ALL}")
    paths = open_session().paths
    voids = read_voids(paths.voids)
    records, damaged = read_duels(paths.duels, voids)
    abandoned = abandoned_duels(paths.duels)
    found = ratings(records)
    if as_json:
        duels = [{"header": each.header, "ended": each.ended, "voided": each.voided} for each in records]
        undecided = [{"header": each.header, "abandoned": abandoned_words(each.state)} for each in abandoned]
        print_json({"ratings": found, "duels": duels, "abandoned": undecided})
    else:
        _print(records, abandoned, found, category)
    if voids.damaged:
        complain(voids.damaged, DAMAGED_ADVICE)
    for path, error in damaged.items():
        fault = damage(path, error)
        complain(fault.message, fault.advice)
    if voids.damaged or damaged:
        ctx.exit(ExitCode.ENVIRONMENT)


def _print(records: list[DuelRecord], abandoned: list[AbandonedDuel], found: list[Rating], category: str) -> None:
    listed: list[DuelRecord | AbandonedDuel] = [*records, *abandoned]
    duels = sorted(listed, key=lambda duel: duel.header.created)
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
        voided = None
        if isinstance(record, DuelRecord):
            outcome, voided = winner_words(header, record.ended), record.voided
            outcome = "; ".join(filter(None, [outcome, unrated_words(header, record.ended)]))
        else:
            outcome = abandoned_words(record.state)
        line = f"{when}  {header.problem_id:>3} {header.slug:<24} {names}: {outcome}"
        print_line(f"{struck(line)}  {voided.words}" if voided is not None else line)
        name = record.path.stem if record.path is not None else header.duel_id
        print_line(f"              `pkb-arena replay {name}`")
