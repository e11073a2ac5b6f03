"""Converts the journals of unreleased versions: `python docs/convert_journals.py ~/.local/share/pkb-arena`.

Run it once in a checkout of this commit, while no pkb-arena is running. Later versions read nothing older.

It renames the folder of sweeps and old fields, gives voids and sweeps today's hash of a kernel, which ignores blank lines
and lines with only a comment, adds what old runs lack, and deletes the index. Converting twice changes nothing.
"""

import base64
import functools
import hashlib
import io
import json
import os
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arena.machine.fingerprint import this_machine
from arena.records.code_hash import code_hash, old_code_hashes
from sandbox.protocol.kernel_files import Files, kernel_hash

Line = dict[str, Any]


@functools.cache
def _text_hash(source: str) -> str:
    lines = source.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    comments = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline):
            row, column = token.start
            if token.type == tokenize.COMMENT and not lines[row - 1][:column].strip():
                comments.add(row)
    except (tokenize.TokenError, SyntaxError, UnicodeError):
        comments = set()
    code = "\n".join(line.rstrip() for row, line in enumerate(lines, 1) if line.strip() and row not in comments)
    return hashlib.sha256(code.encode(errors="surrogatepass")).hexdigest()


def new_hash(source: str, files: Files) -> str:
    """Returns the hash of later versions."""
    if not files:
        return _text_hash(source)
    texts = {name: data.decode(errors="replace") for name, data in files.items() if name.endswith(".py")}
    return kernel_hash(_text_hash(source), files | {name: _text_hash(text).encode() for name, text in texts.items()})


def lines_of(path: Path) -> Iterator[Line]:
    """Yields the lines up to one that cannot be read."""
    for data in path.read_bytes().splitlines():
        try:
            yield json.loads(data)
        except ValueError:
            return


def kernel_of(line: Line) -> tuple[str, Files]:
    """Returns the text and the other files of a line with a kernel."""
    return line.get("source") or "", {name: base64.b64decode(data) for name, data in line.get("files", {}).items()}


def rewrite(path: Path, lines: list[Line]) -> None:
    """Replaces a journal in one step."""
    new = path.with_suffix(".converted")
    new.write_text("".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines))
    os.utime(new, (path.stat().st_atime, path.stat().st_mtime))  # sweeps are sorted by it
    os.replace(new, path)


def convert_run(line: Line) -> Line:
    """Adds the machine to a header, and the clock to a result that has times."""
    if line.get("type") == "run" and not line.get("machine"):
        line["machine"] = this_machine(line["setting"]["device"]).digest
    result = line.get("result") or {}
    if line.get("type") == "finished" and result.get("speedup") and not result.get("clock"):
        result["clock"] = "call"
    return line


def convert_sweep(line: Line, codes: dict[str, str]) -> Line:
    """Gives a line of a sweep today's names. codes: today's hash by the kernel's SHA-256."""
    kind = line["type"]
    if kind == "campaign":
        line["type"] = "sweep"
    if kind == "written" and "complaint" in line:
        line["reason"] = line.pop("complaint")
    if kind == "result":
        if "seat" in line:
            line["worker"] = line.pop("seat")
        line["code"] = codes.get(line["sha256"], line.get("code", ""))
    return line


def main(data: Path) -> None:
    """Converts all journals in a data folder."""
    if (data / "campaigns").is_dir():
        (data / "campaigns").rename(data / "sweeps")
    kernels: list[tuple[str, Files]] = []
    for folder in ("runs", "duels", "sweeps", "imports"):
        for path in sorted((data / folder).glob("*.jsonl")):
            kernels += [kernel_of(line) for line in lines_of(path) if line.get("source")]
    codes = {kernel_hash(*kernel): new_hash(*kernel) for kernel in kernels}
    renamed = {old: new_hash(*kernel) for kernel in kernels for old in {code_hash(*kernel), *old_code_hashes(*kernel)}}
    for path in sorted((data / "runs").glob("*.jsonl")):
        rewrite(path, [convert_run(line) for line in lines_of(path)])
    for folder in ("sweeps", "imports"):
        for path in sorted((data / folder).glob("*.jsonl")):
            rewrite(path, [convert_sweep(line, codes) for line in lines_of(path)])
    for path in sorted((data / "traces").glob("*.jsonl")):
        lines = list(lines_of(path))
        for line in lines:
            if line.get("type") == "answered" and "complaint" in line:
                line["reason"] = line.pop("complaint")
        rewrite(path, lines)
    for path in (data / "voids.jsonl", *(data / "imports").glob("*.voids")):
        if path.exists():
            rewrite(
                path,
                [line | {"code": renamed.get(line.get("code", ""), line.get("code", ""))} for line in lines_of(path)],
            )
    for path in data.glob("results.sqlite*"):
        path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
