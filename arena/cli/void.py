"""`pkb-arena void`: marks a result or a kernel as not earned, removes such a mark, or lists all marks."""

import time

import click

from arena.board.voiding import VoidTarget, find_target, unvoid, void, voided
from arena.cli.options import complete_result, json_option, open_session
from arena.cli.output import complain, print_found, print_json, print_line, struck
from arena.errors import UsageError
from arena.paths import Paths, user
from arena.records.report_text import where_words
from arena.records.run_record import RunRecord
from arena.records.voids import DAMAGED_ADVICE, Void, Voids, read_voids
from arena.words.untrusted_text import printable


@click.command()
@click.argument("result", metavar="[RESULT]", required=False, shell_complete=complete_result)
@click.option("--note", default="", metavar="TEXT", help="Why it is not earned.")
@click.option("--by", default="", metavar="NAME", help="Who says so. [default: the user of this machine]")
@click.option("--undo", is_flag=True, help="Take the mark back: the result counts again.")
@json_option
def command(result: str | None, note: str, by: str, undo: bool, as_json: bool) -> None:
    """Void RESULT: it stays in its journal, is in no standing and no score, and is shown struck out with the note.

    RESULT is the id of a run, of a sweep's result or of a duel, a journal file, or `last`. It can also be 6 characters or
    more of a kernel's hash: then all results of that code are voided, whatever its comment lines. Without RESULT what is voided
    is listed.
    """
    paths = open_session().paths
    if result is None:
        if note or by or undo:
            raise UsageError("there is no RESULT", "name the id of a run, or the hash of a kernel")
        _list(paths, as_json)
        return
    if not (undo or note.strip()):
        raise UsageError("a void needs a note", "say why the result is not earned: --note TEXT")
    target = find_target(paths, result)
    line = (unvoid if undo else void)(paths, target, note, by or user())
    words = f"{target.words} counts again" if undo else f"{target.words} is {line.words}"
    print_found(as_json, _object(target, line), words)


def _object(target: VoidTarget, line: Void) -> dict[str, object]:
    """Returns an object of `void --json`. Fields are added, never renamed."""
    return {
        "run_id": line.run,
        "code": line.code,
        "results": target.results,
        "players": target.players,
        "note": line.note,
        "by": line.by,
        "at": line.at,
        "voided": not line.undo,
    }


def _list(paths: Paths, as_json: bool) -> None:
    voids = read_voids(paths.voids)
    entries = {entry.run_id: entry for entry in (voided(paths) if voids else [])}
    targets = _targets([*entries.values()], voids)
    if voids.damaged:
        complain(voids.damaged, DAMAGED_ADVICE)
    if as_json:
        print_json([_object(target, line) for target, line in targets])
        return
    if not targets:
        print_line("Nothing is voided.")
    for target, line in targets:
        when = time.strftime("%d %b %Y %H:%M", time.localtime(line.at))
        print_line(f"{when}  {target.words}: {line.words}")
        for run in target.results:
            if (entry := entries.get(run)) is not None:
                print_line(f"    {struck(_words(entry))}")


def _targets(entries: list[RunRecord], voids: Voids) -> list[tuple[VoidTarget, Void]]:
    found = [(VoidTarget(line.run, "", [line.run]), line) for line in voids.runs.values()]
    for line in voids.kernels.values():
        same = [entry for entry in entries if entry.code == line.code]
        players = sorted({entry.player for entry in same})
        shown = same[0].sha256[:8] if same else ""  # its revision, as the history names it
        found.append((VoidTarget("", line.code, [entry.run_id for entry in same], players, shown), line))
    return sorted(found, key=lambda pair: pair[1].at)


def _words(entry: RunRecord) -> str:
    speed = f"  {entry.median:.2f}×" if entry.median is not None else ""
    who = f"{entry.run_id}  {entry.problem_id} {entry.slug}  {printable(entry.player)}"
    return f"{who}  {entry.verdict}{speed}  {where_words(entry)}"
