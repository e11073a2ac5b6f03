"""Writes the pages of attempts into a folder: index.html, and attempts/ID.html."""

import itertools
import re
import time
from collections.abc import Sequence
from pathlib import Path

from arena.errors import UsageError, why
from arena.export.pages.attempts import PageAttempt, gather_attempts
from arena.export.pages.kernel_part import kernel_of, kernel_of_run, kernel_part
from arena.export.pages.markup import Markup, document, element, name
from arena.export.pages.trace_part import trace_part
from arena.export.pages.verdict_part import cost_words, marked, table, verdict_part
from arena.machine.facts import installed_version
from arena.paths import NAMED, Paths, make_folder, unwritable
from arena.records.report_text import brief_speed, verdict_span
from arena.words.headline import TOO_NOISY
from arena.workspace.kernels import Workspace
from problems.catalogue import Catalogue

ATTEMPTS = "attempts"
"""The folder of the pages."""
_PLAIN = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,79}")
_HEADS = ("problem", "player", "attempt", "verdict", "speedup", "of bound", "cost", "when")


def export_pages(paths: Paths, catalogue: Catalogue, folder: Path, names: Sequence[str] = ()) -> tuple[int, list[str]]:
    """Writes pages of the attempts of these sweeps, or of all attempts, into a new folder.

    Returns:
        The number of attempts, and what was left out because it could not be read.

    Raises:
        UsageError: the folder is not empty, or there is no such sweep or attempt.
        MachineError: no file with attempts can be read, or the folder cannot be written.
    """
    found = gather_attempts(paths, names)
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", "name a new folder")
    make_folder(folder, NAMED)
    files = _file_names(found.attempts)
    workspace = Workspace(paths.workspace)
    try:
        (folder / ATTEMPTS).mkdir()
        for attempt, file in zip(found.attempts, files, strict=True):
            page = _page(attempt, workspace, catalogue)
            (folder / ATTEMPTS / file).write_text(page, encoding="utf-8")
        (folder / "index.html").write_text(_index(found.attempts, files), encoding="utf-8")
    except OSError as error:
        raise unwritable(folder, error, NAMED) from None
    return len(found.attempts), found.left_out


def _file_names(attempts: Sequence[PageAttempt]) -> list[str]:
    """Returns a separate file name for each attempt. An id comes from a journal and may not be a valid name."""
    taken: dict[str, None] = {}
    for number, attempt in enumerate(attempts, 1):
        plain = attempt.key.lower() if _PLAIN.fullmatch(attempt.key) else "attempt"
        taken[plain if plain not in taken else f"{plain}.{number}"] = None
    return [f"{each}.html" for each in taken]


def _index(attempts: Sequence[PageAttempt], files: Sequence[str]) -> str:
    version = installed_version("pkb-arena") or ""
    parts = [
        element("h1", "Attempts"),
        element("p", f"{len(attempts)} attempts at problems of ParallelKernelBench, pkb-arena {version}.", class_="muted"),
    ]  # fmt: skip
    pairs = list(zip(attempts, files, strict=True))
    for origin, group in itertools.groupby(pairs, lambda pair: pair[0].origin):
        rows = [_row(attempt, file) for attempt, file in group]
        parts += [element("h2", origin), element("div", table(_HEADS, rows), class_="card")]
    return document("pkb-arena: attempts", *parts)


def _row(attempt: PageAttempt, file: str) -> tuple[str, ...]:
    link = element("a", f"{attempt.problem_id} {attempt.problem}", href=f"{ATTEMPTS}/{file}")
    report = attempt.report
    roofline = report.roofline if report is not None and report.outcome != TOO_NOISY else None
    return (
        *(link, name(attempt.player), str(attempt.number or ""), _verdict(attempt), brief_speed(report)),
        f"{roofline.percent:.0f} %" if roofline is not None else "",
        f"${attempt.spent.usd:.4f}" if attempt.spent is not None and attempt.spent.usd else "",
        _when(attempt.at),
    )


def _verdict(attempt: PageAttempt) -> Markup:
    """Returns the verdict, struck out if it is voided."""
    mark = marked(verdict_span(attempt.verdict))
    return element("span", mark, class_="struck") if attempt.void is not None else mark


def _when(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
    except (OverflowError, ValueError, OSError):
        return ""


def _page(attempt: PageAttempt, workspace: Workspace, catalogue: Catalogue) -> str:
    number = f" · attempt {attempt.number}" if attempt.number else ""
    title = f"{attempt.problem_id} {attempt.problem}"
    setting = attempt.setting
    where = f"{setting.preset} · {setting.dtype} · world {setting.world} · {setting.device}"
    words = " · ".join(filter(None, (attempt.origin, where, attempt.machine, _when(attempt.at))))
    parts = [
        element("p", element("a", "All attempts", href="../index.html")),
        element("h1", f"{title} · ", name(attempt.player), number),
        element("p", words, class_="muted"),
        element("h2", "Verdict"),
        element("div", *_verdict_parts(attempt), class_="card"),
        element("h2", "Cost"),
        element("p", _cost(attempt)),
    ]
    try:
        steps = trace_part(attempt.trace, workspace) if attempt.trace is not None else None
    except OSError as error:
        steps = None
        parts.append(element("p", f"The trace cannot be read: {why(error)}"))
    if steps is not None:
        parts.append(steps)
    else:
        kernel = kernel_of(attempt, workspace, catalogue)
        before = kernel_of_run(attempt.before)
        parts.append(element("h2", "Kernel"))
        if before is not None:
            parts.append(element("p", "Compared with this player's kernel before it.", class_="muted"))
        parts.append(kernel_part(kernel, before) if kernel is not None else element("p", "There is no kernel."))
    return document(f"{title} · {attempt.player}", *parts)


def _verdict_parts(attempt: PageAttempt) -> list[Markup]:
    parts = []
    if attempt.void is not None:
        parts.append(element("p", element("strong", "In no standing and no score"), f": {attempt.void.words}"))
    if attempt.report is not None:
        return [*parts, verdict_part(attempt.report)]
    return [*parts, element("p", marked(verdict_span(attempt.verdict)), f" {attempt.detail}")]


def _cost(attempt: PageAttempt) -> str:
    spent = cost_words(attempt.spent) if attempt.spent is not None else ""
    seconds = attempt.seconds or (attempt.report.seconds.total if attempt.report is not None else 0.0)
    judged = f"{seconds:.1f} s of judging" if seconds else ""
    return "; ".join(filter(None, (spent, judged))) or "nothing that was counted"
