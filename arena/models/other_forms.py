"""Whole kernels that an answer has in other forms than a fenced block: tool calls as text, JSON, tags, diffs, heredocs."""

import ast
import contextlib
import html
import json
import re
import symtable
import textwrap
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from arena.models.fences import LANGUAGE, PATH, THOUGHTS, blocks_of

WRITES_CALLS_AS_TEXT = re.compile(
    r"<tool_call|<function[=_s ]|<invoke |<[|｜]tool|<\|python_tag\|>|\[TOOL_(CALLS?|REQUEST)\]|to=functions\.|^Action Input:"
    r"|[\"']?(name|tool|function)[\"']?\s*:\s*[\"'](run|compile|kit_docs)[\"']|tool_calls?[\"'_]",
    re.MULTILINE,
)
"""Found in answers of models whose server does not parse their tool calls."""
_MOST_TRIES, _DEEPEST = 200, 3
"""Limits for texts that are made to take long."""
_THOUGHT = re.compile(rf"(?:[<◁]|\[(?=(?-i:THINK)))({THOUGHTS})[]>▷].*?([<◁[]/\1[]>▷]|\Z)", re.I | re.S)
_BEGINS_JSON = re.compile(r"[\[{]\s*[\"'{\[]")
_TAG = re.compile(r"<([A-Za-z][\w:.-]*)([= ][^<>\n]*)?>")
_BEFORE_CPP = re.compile(r"(?:\w|#include |template )\Z")
"""What stands before <vector>, <class T> and <float> in C++."""
_MARK = re.compile(
    r"(?m)<[|｜][^|｜<>\n]{1,60}[|｜]>|\{code[^{}\n]*\}|^(?:[<-]{5,9} \w+|={5,9}|[>+]{5,9} \w+)$"
    r"|\[/?(?:PYTHON|CODE|TOOL_CALLS?|ARGS|ANSWER|KERNEL|SOLUTION|(?:END_)?TOOL_REQUEST)\]"
)
_HEREDOC = re.compile(r"^(.*)<<-?[ \t]*(['\"\\]?)(\w+)['\"]?(.*)$")
_FILE = re.compile(rf"[./]*{PATH}\b")
_MAGIC = re.compile(r"^(?:%%(?:writefile|file)[ \t]+(?:-a[ \t]+)?(\S+)|%%\w+.*|[%!]\w.*)\n", re.MULTILINE)
_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update) File: |\+\+\+ b/)(\S+)\n((?:[+@].*\n?|\n)+)", re.MULTILINE)
_DIFF_HEAD = re.compile(r"^(?:diff |index |new file|\*\*\* |--- |\+\+\+ |@@|\\ No newline).*\n?", re.MULTILINE)
_RUN_OF_ADDED = re.compile(r"(?<![^\n]\n)(?<!^ )^(?:\+.*\n?|\n(?=\+))+(?![ -])", re.MULTILINE)
_TRIPLE = re.compile(r"(\"\"\"|''')(.*?)\1|[:=(]\s*(`)([^`]*)`", re.DOTALL)
_LITERAL = re.compile(r"""[:(=]\s*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')""")
_COPIED = str.maketrans("\u00a0\u2018\u2019\u201c\u201d\u2028", " ''\"\"\n", "\u200b\ufeff")
"""Characters that pages put into code."""
_NUMBERED = re.compile(r"^ *L?\d+(?:[ \t]*[|:.] ?|[ \t]*[\t→]|  ?)", re.MULTILINE)
_COLOURS = re.compile(r"\x1b\[[\d;]*m|</?(?:span|div|p|b|i|em|font|a|td|tr)\b[^<>\n]*>")
_PROMPT = re.compile(r"^(?:>>>|\.\.\.|In ?\[\d*\]:| +\.\.\.:|Out\[\d*\]:.*) ?", re.MULTILINE)
_OUTERMOST = re.compile(r"^```\w*\n(.*)```", re.MULTILINE | re.DOTALL)
_GLUED = re.compile(r"(?<=[`'\">｜|:])(?=(?:import|from) \w)")
_BEGINS_CODE = re.compile(r"\s*(?:import |from \w|def |class |@|#|\"\"\"|'''|async |[A-Za-z_][\w.\[\]]*(?:: ?\w+)? = )")


def is_kernel(text: str) -> bool:
    """Whether a text is Python that defines `solution`."""
    try:
        return "solution" in text and symtable.symtable(text, "kernel.py", "exec").lookup("solution").is_assigned()
    except (SyntaxError, ValueError, KeyError, RecursionError, MemoryError):
        return False


def other_forms(text: str, closed: bool, prose: bool) -> list[str]:
    """Returns the whole kernels in an answer: a text, or fences that name the files of each. The last one is meant.

    closed: only what has an end, because the answer was cut off. prose: also lines between prose, if there is no block.
    """
    text = _THOUGHT.sub("", text.replace("\r\n", "\n")).rpartition("</think>")[2]
    if "solution" not in text:
        return []
    tries = iter(range(_MOST_TRIES))
    found = _search(text, True, tries) or ([] if closed else _search(text, False, tries))
    return found or (_in_prose(text) if prose else [])


def _search(text: str, closed: bool, tries: Iterator[int], depth: int = 0) -> list[str]:
    fenced = (block.text for block in blocks_of(text) if block.closed or not closed)
    marked = _MARK.split(text)[1 : -1 if closed else None]
    forms: list[Iterable[str]] = [_json(text), _files(text, closed and not depth), _tags(text, closed), marked, fenced]
    if not closed or depth:
        forms += [_added(text), _strings(text), *([each] for each in _cleaned(text) if each != text)]
    for form in forms:
        found: list[str] = []
        for inner in form:
            if next(tries, None) is None:
                return found
            whole = textwrap.dedent(LANGUAGE.sub("", inner)).strip("\n") + "\n"
            if whole.startswith(_LONG_FENCE) or (is_kernel(whole) and not any(_heredocs(whole))):
                found.append(whole)
            elif depth < _DEEPEST and len(inner) < len(text) and "solution" in inner:
                found += _search(inner, closed, tries, depth + 1)
        if found:
            return found
    return []


_LONG_FENCE = "`" * 12


def _as_fences(files: dict[str, str]) -> str:
    """Returns the files of a kernel in fences that name them."""
    language = {True: "python", False: "cuda"}
    return "".join(
        f"{_LONG_FENCE}{language[name.endswith('.py')]} {name}\n{text.rstrip()}\n{_LONG_FENCE}\n"
        for name, text in files.items()
    )


def _json(text: str) -> Iterator[str]:
    """Yields all texts in JSON objects and lists, also in Python's notation. A list of lines is one text."""
    decoder = json.JSONDecoder(strict=False)
    end = 0
    for begin, _ in zip(_BEGINS_JSON.finditer(text), range(_MOST_TRIES), strict=False):
        if begin.start() < end:
            continue
        try:
            value, end = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            try:
                value = ast.literal_eval(text[begin.start() : text.rindex("}" if begin[0][0] == "{" else "]") + 1])
                end = len(text)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
        yield from _texts(value)


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict() | list() if len(named := _titled(value)) > 1 and "kernel.py" in named:
            yield _as_fences(named)
        case dict():
            if isinstance(cells := value.get("cells"), list):  # a notebook
                code = [
                    cell.get("source") for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"
                ]
                yield "\n".join("".join(source).rstrip("\n") for source in code if isinstance(source, str | list))
            for each in value.values():
                yield from _texts(each)
        case list() if value and all(isinstance(each, str) for each in value):
            yield "\n".join(line.rstrip("\n") for line in value)
        case list():
            for each in value:
                yield from _texts(each)


def _titled(value: dict[Any, Any] | list[Any]) -> dict[str, str]:
    """Returns the files of an object: {"kernel.py": text, ...}, or a list of objects with a path and a text."""
    if isinstance(value, dict):
        return {str(name): each for name, each in value.items() if isinstance(each, str)}
    calls = (next((v for v in each.values() if isinstance(v, dict)), each) for each in value if isinstance(each, dict))
    texts = [[text for text in each.values() if isinstance(text, str)] for each in calls]
    named = [
        (name, [text for text in each if text != name]) for each in texts for name in each if _FILE.fullmatch(name)
    ]
    return {name: max(others, key=len, default="") for name, others in named}


def _files(text: str, closed: bool) -> Iterator[str]:
    """Yields what heredocs, `%%writefile` cells and patches write."""
    files: dict[str, str] = {}
    for command, body in _heredocs(text):
        name = _FILE.search(command)
        files[name[0] if name else f"{len(files)}"] = body
    for patched in _PATCHED.finditer(text):
        if closed and not text.startswith("*** ", patched.end()):
            return
        files[patched[1]] = re.sub(r"^(?:\+|@@.*\n?)", "", patched[2], flags=re.MULTILINE)
    for block in (block for block in blocks_of(text) if block.closed or not closed):
        if (magic := _MAGIC.match(block.text)) is not None and magic[1]:
            files[magic[1]] = block.text[magic.end() :]
    files = {
        name.rpartition("/")[2] if name.endswith("/kernel.py") else name.removeprefix("./"): files[name]
        for name in files
    }
    named = {name: files[name] for name in files if not name.isdigit()}
    yield from [_as_fences(named)] if len(named) > 1 and "kernel.py" in named else files.values()


def _heredocs(text: str) -> Iterator[tuple[str, str]]:
    """Yields the command line and the text of each heredoc. An end that is missing is searched once."""
    lines = text.split("\n")
    places: dict[str, list[int]] = {}
    for at, line in enumerate(lines):
        places.setdefault(line.strip(), []).append(at)
    end = -1
    for at, line in enumerate(lines):
        if at > end and (found := _HEREDOC.match(line)) and (ends := places.get(found[3], [0]))[-1] > at:
            end = ends[bisect_right(ends, at)]
            body = "\n".join(lines[at + 1 : end])
            yield f"{found[1]} {found[4]}", body if found[2] else re.sub(r"\\([$`\\])", r"\1", body)


def _tags(text: str, closed: bool) -> Iterator[str]:
    """Yields the files that tags name, and what is between a tag and its end."""
    title, files, found = "", dict[str, str](), list[str]()
    tags = (tag for tag in _TAG.finditer(text) if not _COLOURS.fullmatch(tag[0]))
    for tag, _ in zip(tags, range(_MOST_TRIES), strict=False):
        ends = [end.start() for end in re.finditer(f"</{re.escape(tag[1])}[^<>]*>", text[tag.end() :])]
        ends += [] if closed or ends or _BEFORE_CPP.search(text[max(0, tag.start() - 9) : tag.start()]) else [len(text)]
        title = (_FILE.search(tag[2] or "") or [title])[0]
        for end in dict.fromkeys([*ends[-1:], *ends[:1]]):
            body = text[tag.end() :][:end].removeprefix("<![CDATA[").removesuffix("]]>")
            found.append(html.unescape(body) if re.search("&(?:lt|gt|amp|quot|#39);", body) else body)
        if ends and title and "<" + "/" not in body:
            files[title], title = found[-1].strip("\n"), ""
        if ends and _FILE.fullmatch(body.strip()):
            title = body.strip()
    yield from [_as_fences(files)] if len(files) > 1 and "kernel.py" in files else found


def _added(text: str) -> Iterator[str]:
    """Yields the lines that a diff adds, where nothing else is around them, and the file after a diff from its first line on."""
    lines = _DIFF_HEAD.sub("", text)
    for found in _RUN_OF_ADDED.finditer(lines):
        yield re.sub(r"^\+", "", found[0], flags=re.MULTILINE)
    after = re.sub(r"^(?:-.*\n|[ +])", "", lines, flags=re.MULTILINE)
    if "\n+" in lines and text.count("\n@@") < 2 and re.match(r"\s*(?:import |from \w|#|\"\"\")", after):
        yield after


def _strings(text: str) -> Iterator[str]:
    """Yields the texts in Python calls such as run(source=\"\"\"...\"\"\")."""
    yield from (found[2] or found[4] or "" for found in _TRIPLE.finditer(text))
    try:
        constants = (node for node in ast.walk(ast.parse(text.strip())) if isinstance(node, ast.Constant))
        yield from (node.value for node in constants if isinstance(node.value, str))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        for found in _LITERAL.finditer(text):
            with contextlib.suppress(ValueError, SyntaxError):
                yield ast.literal_eval(found[1])


def _cleaned(text: str) -> Iterator[str]:
    """Yields the text without magics, numbers, prompts, colours, quotes, tags, inner fences, escapes: the first counts."""
    for pattern in (_MAGIC, _NUMBERED, _PROMPT, _COLOURS):
        yield pattern.sub("", text)
    yield text.translate(_COPIED)
    if text.count("\\n") > text.count("\n"):
        yield re.sub(r"\\(.)", lambda each: {"n": "\n", "t": "\t"}.get(each[1], each[1]), text)
    yield html.unescape(_COLOURS.sub("", re.sub(r"<br ?/?>\n?", "\n", text))).replace("\u00a0", " ")
    yield from _OUTERMOST.findall(text)
    if (bare := text.strip())[:1] in ("`", "'"):
        yield bare.strip("`'")
    lines = text.strip("\n").split("\n")
    if all(line.startswith((">", "|")) or not line.strip() for line in lines):
        yield "\n".join(line[1:].removeprefix(" ") for line in lines)


def _in_prose(text: str) -> list[str]:
    """Returns the longest run of lines that is a kernel, between lines of prose."""
    lines = _GLUED.sub("\n", text).split("\n")
    begin = -1
    for _ in range(20):
        begin = next((at for at in range(begin + 1, len(lines)) if _BEGINS_CODE.match(lines[at])), len(lines) - 1)
        indent = len(lines[begin]) - len(lines[begin].lstrip())
        outside = (at for at in range(begin, len(lines)) if lines[at].strip() and lines[at][:indent].strip())
        end = next(outside, len(lines))
        for _ in range(10):
            source = "\n".join(line[indent:] for line in lines[begin:end]).strip("\n") + "\n"
            if "solution" not in source:
                break
            try:
                tree = ast.parse(source)
            except SyntaxError as error:
                end = min(end - 1, begin + (error.lineno or 1) - 1)
                if "solution" not in "\n".join(lines[begin:end]):
                    begin = max(end - 1, begin)  # every run of lines up to there breaks at the same line
                    break
                if lines[end][indent : indent + 1].isspace() or _BEGINS_CODE.match(lines[end]):
                    return []  # the code is broken there: it is no prose
            except (ValueError, RecursionError, MemoryError):
                break
            else:
                for last in reversed(tree.body):  # prose may parse: "- fast", "+++++++ REPLACE"
                    if not isinstance(last, ast.Expr) or isinstance(last.value, ast.Call):
                        break
                    source = "".join(source.splitlines(keepends=True)[: last.lineno - 1])
                return [source.rstrip("\n") + "\n"] if is_kernel(source) else []
    return []
