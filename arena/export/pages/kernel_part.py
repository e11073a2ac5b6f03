"""Kernels on a page: their files, and the changes since the previous kernel."""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path

from arena.export.pages.attempts import PageAttempt
from arena.export.pages.markup import Markup, element, folded, joined
from arena.records.header import read_header
from arena.workspace.kernel_folder import texts_of
from arena.workspace.kernels import Workspace
from problems.catalogue import Catalogue
from sandbox.protocol.kernel_files import Kernel

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
    return Kernel(header.source, header.files) if header is not None else None


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
        parts.append(folded(summary, element("pre", source), is_open=before is None))
    return joined(*parts)


def _diff(name: str, old: str, new: str) -> Markup:
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > MOST_LINES:
        return element("p", f"{name} changed; with more than {MOST_LINES} lines it is not compared.", class_="muted")
    lines = list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return folded(f"{name}: +{added} -{removed} lines", element("pre", *_coloured(lines)), is_open=True)


def _coloured(lines: list[str]) -> Iterator[Markup]:
    for line in lines:
        yield element("span", line + "\n", class_=_KINDS.get(line[:1], ""))
