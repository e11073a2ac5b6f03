"""Static pages of attempts: an index, and a page for each. They need no scripts and no external files."""

import difflib
import itertools
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from arena.errors import UsageError, why
from arena.export.attempts import PageAttempt, gather_attempts
from arena.machine.facts import installed_version
from arena.models.budget import Spent
from arena.models.conversation import Message
from arena.paths import NAMED, Paths, make_folder, writing
from arena.players import trace
from arena.records.header import read_header
from arena.records.report_text import Span, brief_speed, facts, output_of, told_parts, verdict_span, where_words
from arena.records.run_record import RunRecord
from arena.words.headline import TOO_NOISY
from arena.words.markup import Markup, code, document, element, folded, joined, named, table
from arena.workspace.kernel_folder import texts_of
from arena.workspace.kernels import Workspace
from problems.catalogue import Catalogue
from sandbox.protocol.kernel_files import Kernel


def marked(span: Span) -> Markup:
    """A span in the colour of its role."""
    role, words = span
    return element("strong", words, class_=role)


def cost_words(spent: Spent) -> str:
    """ "12,000 tokens read, 3,400 written, $0.21"; empty if nothing was spent."""
    if not (spent.tokens or spent.usd):
        return ""
    estimated = ", in part estimated" if spent.estimated else ""
    return f"{spent.read:,} tokens read, {spent.written:,} written, ${spent.usd:.4f}{estimated}"


def verdict_part(record: RunRecord) -> Markup:
    """Shows everything in a record."""
    (_, told), why = told_parts(record)
    parts = [element("p", marked(verdict_span(record.verdict)), f" {told} {why}".rstrip())]
    if record.failure is not None:
        parts.append(element("p", record.detail))
    rows = [(element("span", fact.name, class_="muted"), fact.text) for fact in facts(record)]
    parts.append(table(("", ""), rows))
    if record.failure is not None and (output := output_of(record.failure)):
        parts.append(folded("Output", element("pre", output, class_="words"), is_open=True))
    return joined(*parts)


MOST_LINES = 2000
"""Most lines of a text that is compared, because the time of a comparison grows faster than the text."""
_HASH = re.compile(r"[0-9a-f]{64}")
_KINDS = {"+": "added", "-": "removed", "@": "hunk"}


def kernel_of_run(path: Path | None) -> Kernel | None:
    """Returns the kernel in a run's journal; None if the journal cannot be read."""
    try:
        header = read_header(path) if path is not None else None
    except (OSError, ValueError):
        return None
    return header.kernel if header is not None else None


def revision(workspace: Workspace, sha256: str) -> Kernel | None:
    """Returns a kernel by its hash; None if there is none. The hash comes from a journal and may be any text."""
    return workspace.kernel(sha256) if _HASH.fullmatch(sha256) else None


def kernel_of(attempt: PageAttempt, workspace: Workspace, catalogue: Catalogue) -> Kernel | None:
    """Returns the kernel that an attempt's verdict is about; None if it cannot be found."""
    if not attempt.sha256:
        return None
    problem = next((problem for problem in catalogue.problems if problem.slug == attempt.problem), None)
    places = (
        kernel_of_run(attempt.run),
        revision(workspace, attempt.sha256),
        attempt.written,
        Kernel((problem.house_source or "") if problem is not None else ""),
        Kernel(problem.baseline_source if problem is not None else ""),
    )
    return next((kernel for kernel in places if kernel is not None and kernel.sha256 == attempt.sha256), None)


def kernel_part(kernel: Kernel, before: Kernel | None) -> Markup:
    """Shows a kernel's changes since `before`, then all of its files."""
    files, earlier = texts_of(kernel), texts_of(before) if before is not None else {}
    parts = []
    if before is not None:
        names = [name for name in {**files, **earlier} if files.get(name) != earlier.get(name)]
        changed = [_diff(name, earlier.get(name, ""), files.get(name, "")) for name in names]
        parts += changed or [element("p", "The same text as the kernel before.", class_="muted")]
    for name, source in files.items():
        lines = source.count("\n") + 1
        summary = f"{name} · {lines} line{'s' * (lines != 1)}"
        parts.append(folded(summary, code(name, source), is_open=before is None))
    return joined(*parts)


def _diff(name: str, old: str, new: str) -> Markup:
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > MOST_LINES:
        return element("p", f"{name} changed; with more than {MOST_LINES} lines it is not compared.", class_="muted")
    lines = list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    coloured = (element("span", line + "\n", class_=_KINDS.get(line[:1], "")) for line in lines)
    return folded(f"{name}: +{added} -{removed} lines", element("pre", *coloured), is_open=True)


_Event = trace.AnyTraceEvent
_SAID = (trace.Mused, trace.Wrote, trace.Called, trace.Returned, trace.Retried)


def trace_part(path: Path, workspace: Workspace) -> Markup:
    """Shows the prompt and the steps of a trace.

    Raises:
        OSError: the trace cannot be read.
    """
    events = list(trace.read_trace(path))
    asked = [event for event in events if isinstance(event, trace.Asked)]
    parts = [element("h2", "Prompt"), *(_prompt(asked[0]) if asked else [element("p", "It was asked nothing.")])]
    parts.append(element("h2", "Steps"))
    told: Sequence[Message] = asked[0].messages if asked else ()
    before: Kernel | None = None
    for step, group in itertools.groupby(events, lambda event: event.step):
        held = list(group)
        parts.append(element("h3", _heading(step, held)))
        for event in held:
            if isinstance(event, trace.Asked) and event is not asked[0]:
                parts += _messages(_new(event.messages, told))
                told = event.messages
        parts += _said(held)
        for event in held:
            if isinstance(event, trace.Answered):
                parts.append(_answer(event))
        kernel = _kernel(held, workspace)
        if kernel is not None:
            parts.append(kernel_part(kernel, before))
            before = kernel
        parts += [
            element("div", verdict_part(event.report), class_="card")
            for event in held
            if isinstance(event, trace.Judged)
        ]
        parts += [element("p", f"Ended: {event.reason}") for event in held if isinstance(event, trace.Ended)]
    return joined(*parts)


def _prompt(asked: trace.Asked) -> list[Markup]:
    tools = [element("p", f"Tools: {', '.join(asked.tools)}", class_="muted")] if asked.tools else []
    return [folded("System prompt", _words(asked.system)), *_messages(asked.messages), *tools]


def _messages(messages: Iterable[Message]) -> list[Markup]:
    """Shows messages to the model. The model's own messages are shown in their steps."""
    shown = []
    for message in messages:
        if message.role == "assistant":
            continue
        results = [joined(element("p", f"Result of {each.name}:"), _words(each.text)) for each in message.results]
        shown.append(folded("Message to the model", *([_words(message.content)] if message.content else []), *results))
    return shown


def _new(messages: Sequence[Message], told: Sequence[Message]) -> Sequence[Message]:
    """Returns the messages after those that are on the page already."""
    same = 0
    for new, old in zip(messages, told, strict=False):
        if new != old:
            break
        same += 1
    return messages[same:]


def _heading(step: int, events: Iterable[_Event]) -> str:
    judged = [event for event in events if isinstance(event, trace.Judged)]
    words = [f"{verdict_span(each.report.verdict)[1]} {brief_speed(each.report)}".rstrip() for each in judged]
    return " · ".join([f"Step {step}" if step else "Before the first step", *words])


def _said(events: Iterable[_Event]) -> list[Markup]:
    """Shows what the model thought, wrote and called, in order."""
    said = [event for event in events if isinstance(event, _SAID)]
    return [part for kind, group in itertools.groupby(said, type) for part in _texts(kind, list(group))]


def _texts(kind: type, events: list[_Event]) -> Iterable[Markup]:
    if kind in (trace.Mused, trace.Wrote):
        said = "".join(event.text for event in events if isinstance(event, trace.Mused | trace.Wrote))
        what = "Thought" if kind is trace.Mused else "Answer"
        yield folded(f"{what} · {len(said):,} characters", _words(said))
    for event in events:
        match event:
            case trace.Called():
                yield folded(f"Calls {event.tool}", *_arguments(event.arguments))
            case trace.Returned():
                yield folded(f"{event.tool} {'failed' if event.error else 'returned'}", _words(event.text))
            case trace.Retried():
                yield element("p", f"Request {event.attempt} failed: {event.reason}", class_="muted")


def _arguments(arguments: str) -> list[Markup]:
    """Shows the values of an object one by one, because JSON escapes line breaks."""
    try:
        values = msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        return [_words(arguments)]
    return [
        joined(
            element("p", f"{key}:"), _words(value if isinstance(value, str) else msgspec.json.encode(value).decode())
        )
        for key, value in values.items()
    ]


def _answer(event: trace.Answered) -> Markup:
    reason = f": {event.reason}" if event.reason else ""
    cost = cost_words(event.spent)
    return element("p", f"Outcome: {event.outcome}{reason}{' · ' + cost if cost else ''}", class_="muted")


def _kernel(events: Sequence[_Event], workspace: Workspace) -> Kernel | None:
    """Returns the kernel that was judged, with all its files; else the one that was submitted."""
    judged = next((event.report.sha256 for event in events if isinstance(event, trace.Judged)), "")
    written = next((each.kernel for each in events if isinstance(each, trace.Answered) and each.source), None)
    return revision(workspace, judged) or written


def _words(text: str) -> Markup:
    return element("pre", text, class_="words")


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
    attempts, left_out = gather_attempts(paths, names)
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", "name a new folder")
    make_folder(folder, NAMED)
    files = _file_names(attempts)
    workspace = Workspace(paths.workspace)
    with writing(folder, NAMED):
        (folder / ATTEMPTS).mkdir()
        for attempt, file in zip(attempts, files, strict=True):
            page = _page(attempt, workspace, catalogue)
            (folder / ATTEMPTS / file).write_text(page, encoding="utf-8")
        (folder / "index.html").write_text(_index(attempts, files), encoding="utf-8")
    return len(attempts), left_out


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
        *(link, named(attempt.player), str(attempt.number or ""), _verdict(attempt), brief_speed(report)),
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
    words = " · ".join(filter(None, (attempt.origin, where_words(attempt.setting), attempt.machine, _when(attempt.at))))
    parts = [
        element("p", element("a", "All attempts", href="../index.html")),
        element("h1", f"{title} · ", named(attempt.player), number),
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
