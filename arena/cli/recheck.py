"""`pkb-arena recheck`: judges stored best kernels again with the current judge, and prints what changed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from arena.board.recheck import FAILS, Recheck, Rechecker, RecheckSide, bests
from arena.board.scorecard import BASELINES, kind_of
from arena.cli.display import run_interruptibly
from arena.cli.options import CliSession, json_option, open_session, rounds_option, seconds_option, unsafe_option
from arena.cli.output import LiveLine, counted, print_json, print_line, say, verdict_text, while_it_is_read
from arena.errors import UsageError
from arena.paths import user
from arena.records.index import Store, stored
from arena.records.report_text import where_words
from arena.records.run_record import RunRecord
from arena.runs.engine import Engine
from arena.sweep.records import choose_problems
from arena.words.headline import brief_words
from arena.words.untrusted_text import printable
from sandbox.protocol.verdict import ExitCode


@click.command()
@click.argument("players", nargs=-1, metavar="[PLAYER]...")
@click.option("--problems", "problem_set", metavar="SET", help="Only these problems, as `sweep --problems`.")
@click.option(
    "--void", is_flag=True, help="Void the results of a best that no longer passes, then judge the next best."
)
@click.option("--by", default="", metavar="NAME", help="Who voids them. [default: the user of this machine]")
@rounds_option
@seconds_option
@unsafe_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    players: tuple[str, ...],
    problem_set: str | None,
    void: bool,
    by: str,
    rounds: int | None,
    seconds: float | None,
    unsafe: bool,
    as_json: bool,
) -> None:
    """Judge the stored bests of PLAYERs again, or of all players: after an update, or a stricter judge.

    A best is a player's best kernel at a problem in one setting, from sweeps and single runs. Its text comes from its run's
    journal. What changed is printed: a best that fails, is no longer faster than the baseline, or is faster now. Speeds are
    compared only with those of the same machine. With --void the player's results of a failing kernel in this setting
    are voided.

    Exit code 0: all bests still pass. 1: one fails. 3: none fails, and one could not be judged.
    """
    session = open_session()
    if by and not void:
        raise UsageError("--by names who voids, and nothing is voided", "add --void")
    budget_s = session.settings.seconds if seconds is None else seconds
    terms = {"rounds": rounds, "budget_s": budget_s, "void_by": (by or user()) if void else "", "unsafe": unsafe}
    to_judge = _to_judge(session, players, problem_set)
    found = _Findings(total=len(to_judge))
    try:
        if to_judge:
            run_interruptibly(_recheck(session, to_judge, terms, found, as_json))
            found.whole = True
    finally:  # an interrupted recheck has results, too
        with while_it_is_read():
            found.show(as_json)
    ctx.exit(found.exit_code)


Stored = list[tuple[list[RunRecord], list[RunRecord]]]
"""For each best kernel: the player's correct kernels in its setting, best first; all runs of the player."""


def _to_judge(session: CliSession, players: Sequence[str], problem_set: str | None) -> Stored:
    """Returns what is to be judged, ordered by problem, so that each problem is opened once."""
    wanted = {problem.id for problem in choose_problems(session.catalogue, [problem_set])} if problem_set else None

    def ask(store: Store) -> list[list[RunRecord]]:
        known = store.players()
        for player in players:
            if player not in known:
                choices = f"choose from {', '.join(map(printable, known))}" if known else "nothing was run yet"
                raise UsageError(f"there are no results of {player!r}", choices)
        chosen = players or [player for player in known if kind_of(player) != BASELINES]
        return [store.entries(player) for player in dict.fromkeys(chosen)]

    runs = stored(session.paths, ask) or []
    found = [(kernels, entries) for entries in runs for kernels in bests(entries)]
    found = [pair for pair in found if wanted is None or pair[0][0].problem_id in wanted]
    return sorted(found, key=lambda pair: (pair[0][0].problem_id, pair[0][0].preset, pair[0][0].dtype))


@dataclass
class _Findings:
    """The results so far."""

    total: int
    """Number of best kernels to judge."""
    whole: bool = False
    """True if all were judged or left out."""
    rechecks: list[Recheck] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        if any(each.failed for each in self.rechecks):
            return ExitCode.KERNEL_FAILED
        return ExitCode.ENVIRONMENT if any(each.left_out for each in self.rechecks) else ExitCode.PASS

    def show(self, as_json: bool) -> None:
        """Prints the JSON object, or the counts as text. Fields are added, never renamed."""
        changes = Counter(each.change for each in self.rechecks if each.change)
        left_out = sum(bool(each.left_out) for each in self.rechecks)
        judged = len(self.rechecks) - left_out
        if self.total and not (self.whole or self.rechecks):
            return  # it did not begin: the error message has the reason
        if as_json:
            counts = {"total": self.total, "judged": judged, "failed": changes[FAILS], "left_out": left_out}
            print_json({"whole": self.whole or not self.total, **counts, "results": self.rechecks})
            return
        if not self.total:
            print_line("There is no stored best to judge again.")
            return
        of = "" if self.whole else f" of {self.total}"
        parts = [f"{judged}{of} judged again", *(f"{count} {change}" for change, count in changes.items())]
        if left_out:
            parts.append(f"{left_out} not judged")
        unlike = sum(each.after is not None and not each.failed and not each.compared for each in self.rechecks)
        if not changes:
            parts.append("all pass" if unlike else "nothing changed")
        if unlike:
            parts.append(f"{counted(unlike, 'speed')} not compared: too noisy, not timed, or of another machine")
        print_line(", ".join(parts))


async def _recheck(
    session: CliSession, to_judge: Stored, terms: dict[str, Any], found: _Findings, as_json: bool
) -> None:
    """terms: options of `Rechecker`."""
    shown = LiveLine()
    try:
        async with Engine(session.paths, notify=shown.notice) as engine:
            rechecker = Rechecker(engine, session.paths, session.catalogue, session.settings, **terms)
            await rechecker.start(kernels[0].player for kernels, _ in to_judge)
            for number, (kernels, runs) in enumerate(to_judge, 1):
                best = kernels[0]
                shown.draw(f"{number}/{len(to_judge)} {best.problem_id:02d}_{best.slug} {best.player}", force=True)
                async for each in rechecker.recheck(kernels, runs):
                    found.rechecks.append(each)
                    _print(each, shown, as_json)
    finally:
        shown.clear()


def _print(each: Recheck, shown: LiveLine, as_json: bool) -> None:
    """Prints a change on stdout; any other result on stderr if no live line shows it. With JSON, prints all on stderr."""
    shown.clear()
    if (each.change or each.left_out) and not as_json:
        with while_it_is_read():
            print_line(_line(each))
    elif not shown.live or as_json:
        say(_line(each))


def _line(each: Recheck) -> str:
    who = f"{each.id:02d}_{each.problem} {printable(each.player)} ({where_words(each)}, kernel {each.sha256[:8]})"
    if each.after is None:
        return f"{who}: not judged: {each.left_out}"
    voided = f"; voided: {', '.join(each.voided)}" if each.voided else ""
    detail = f"  {each.after.detail}" if each.failed else ""
    said = f": {each.change}" if each.change else ""
    return f"{who}{said}: {_side(each.before)} → {_side(each.after)}{detail}{voided}"


def _side(side: RecheckSide) -> str:
    speed = f" {brief_words(side.speedup.median, side.outcome)}" if side.speedup is not None else ""
    return verdict_text(side.verdict) + (speed if side.passed else "")
