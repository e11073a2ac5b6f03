"""A model's answer, and the kernel file in it: in a fenced block, or as tool calls in text, JSON, tags, diffs, heredocs."""

import ast
import builtins
import contextlib
import html
import json
import re
import symtable
import textwrap
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from arena.models.budget import Spent
from arena.models.conversation import Finish, ToolCall
from arena.models.fences import LANGUAGE, PATH, THOUGHTS, Block, blocks_of, is_python, opening_of, read_answer
from sandbox.protocol.kernel_files import MAIN, Kernel, fault_in, is_file_name

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


_FENCE = "`" * 3
_AGAIN = "\n(The answer was begun again.)\n\n"
"""Text before this mark is not part of the answer. It stays in the text because it was already shown."""
_OVERLAP = 4000
"""Characters at the end of a truncated answer that its continuation may repeat."""
_WHOLE_LINE = 12
"""Minimum characters of a repetition. A shorter one may be chance, unless it is a whole line."""
_PREAMBLE = re.compile(
    r"\A\s*[A-Z*(][^\n`=]*\b(?:continuing|continued|continuation|resuming|picking up|left off|cut off|stopped|the rest"
    r"|remaining)\b[^\n`=]*[:.!…*)]+[ \t]*\n(?:[ \t]*\n)*",
    re.IGNORECASE,
)
"""A sentence before a continuation, such as "Continuing from where I stopped:"."""
_FENCES = re.compile(r"^ {0,3}```", re.MULTILINE)


@dataclass(frozen=True)
class ModelAnswer:
    """One answer of a model."""

    text: str
    finish: Finish
    spent: Spent
    continued: int = 0
    """How often it was truncated and continued."""
    calls: tuple[ToolCall, ...] = ()
    """Tool calls whose results the model needs."""
    kept: tuple[dict[str, Any], ...] = ()
    """Parts of the answer that must go back to the provider with the results of the calls."""

    @property
    def source(self) -> str:
        """The kernel's text; empty if there is none. In a truncated answer only complete blocks count."""
        return self.kernel.source

    @property
    def kernel(self) -> Kernel:
        """The kernel with all its files; an empty one if there is none."""
        if self.finish.reason == "unreadable":
            return Kernel("")
        return whole_kernel(self.text) if self._cut_off else kernel_of(self.text)

    @property
    def _cut_off(self) -> bool:
        return self.finish.reason in ("length", "broken", "budget")

    @property
    def outcome(self) -> str:
        """ "kernel", "refusal", "unreadable", "empty", "prose" (an answer without code), "truncated", or "budget"."""
        if self.finish.reason == "refusal":
            return "refusal"
        if self.finish.reason == "unreadable":
            return "unreadable"
        if not self.text.strip():
            return {"budget": "budget", "length": "truncated"}.get(self.finish.reason, "empty")
        if self._cut_off and not self.source:
            return "budget" if self.finish.reason == "budget" else "truncated"
        return "kernel" if self.source.strip() else "prose"

    @property
    def calls_as_text(self) -> bool:
        """Whether there is no kernel because the model wrote a tool call as text, and the server did not parse it."""
        return self.outcome == "prose" and WRITES_CALLS_AS_TEXT.search(self.text) is not None

    @property
    def reason(self) -> str:
        """The reason why there is no kernel, in one sentence; empty when there is one."""
        if self.calls and self.outcome in ("empty", "prose"):
            return "it called tools again and again, and there is no kernel in its answer"
        match self.outcome:
            case "refusal":
                return f"the model declined{': ' if self.finish.detail else ''}{self.finish.detail[:200]}"
            case "unreadable":
                return "a part of the answer cannot be read"
            case "empty":
                return "the answer is empty"
            case "prose" if self.calls_as_text:
                return "the answer has a tool call as text, without a whole kernel"
            case "prose":
                first = " ".join(self.text.split())
                return f"the answer has no code: {first[:120]}"
            case "truncated":
                again = " again and again" if self.continued else ""
                return self.finish.detail or f"the answer was cut off{again}"
            case "budget":
                return self.finish.detail or "the budget is spent"
            case _:
                return ""


def kernel_of(text: str) -> Kernel:
    """Returns the kernel of an answer: the files that its fences name if kernel.py is among them, else one file.

    One file is the last complete kernel, with the blocks that it needs. Usage examples, output and drafts are left out.
    If no kernel is complete, the Python of the answer is returned, so that the verdict can say what is wrong.
    An answer that consists of Python only needs no fence.
    """
    text = text.rpartition(_AGAIN)[2]
    found = read_answer(text)
    if (named := _named(found.blocks)) is not None:
        return named
    blocks = [block for block in found.blocks if is_python(block) and block.text.strip()]
    if not blocks:
        plain = found.plain.strip() + "\n" if not found.blocks and is_kernel(found.plain) else ""
        other = None if plain and not _names_of(plain).missing else _in_other_forms(text)
        return other or (kernel_of(found.thought) if found.thinking and not plain else Kernel(plain))
    if source := _whole(blocks):
        later = _in_other_forms("".join(found.rest), prose=False)
        return later if later and not _names_of(later.source).missing else Kernel(source)
    if kernel := _in_other_forms(text, prose=not blocks[-1].closed):
        return kernel
    defining = [block for block in blocks if _DEFINES.search(block.text)]
    return Kernel(_joined(defining[-1:] or blocks))


def _in_other_forms(text: str, closed: bool = False, prose: bool = True) -> Kernel | None:
    """Returns the last whole kernel in another form than a fenced block, if possible without undefined names; or None."""
    found = [_named(blocks_of(text)) or Kernel(text) for text in other_forms(text, closed, prose)]
    kernels = [kernel for kernel in found if is_kernel(kernel.source)]
    whole = [kernel for kernel in kernels if not _names_of(kernel.source).missing and not _is_stub(kernel.source)]
    return next(reversed(whole or kernels), None)


def _named(blocks: Sequence[Block]) -> Kernel | None:
    """Returns the kernel of several files that the fences name, else None. The last block of a name counts."""
    texts = {block.name: block.text.strip("\n") + "\n" for block in blocks}
    files = {name: text.encode(errors="replace") for name, text in texts.items() if is_file_name(name)}
    kernel = Kernel(texts.get(MAIN, ""), files)
    return kernel if kernel.source and files and not fault_in(kernel) else None


def whole_kernel(text: str) -> Kernel:
    """Returns the kernel of a truncated answer, from closed blocks only; an empty one if none is complete."""
    text = text.rpartition(_AGAIN)[2]
    blocks = blocks_of(text)
    if (named := _named(blocks)) is not None:
        return named if blocks[-1].closed else Kernel("")
    source = _whole([block for block in blocks if block.closed and is_python(block)])
    return Kernel(source) if source else _in_other_forms(text, closed=True, prose=False) or Kernel("")


def has_whole_kernel(text: str) -> bool:
    """Whether a truncated answer has a complete kernel, and no open block after it."""
    blocks = blocks_of(text.rpartition(_AGAIN)[2])
    return bool(blocks) and blocks[-1].closed and bool(whole_kernel(text).source)


_DEFINES = re.compile(r"^(?:async )?def solution\b|^solution\b.*=", re.MULTILINE)


class _Names(NamedTuple):
    """Names of a block: those it binds at module level, and those it uses without binding them."""

    bound: frozenset[str]
    missing: frozenset[str]


def _whole(blocks: Sequence[Block]) -> str:
    """Returns the last kernel without undefined names, else the last one that parses, else an empty text."""
    names = {at: _names_of(block.text) for at, block in enumerate(blocks)}
    defining = [at for at in names if "solution" in names[at].bound]
    kernels = [at for at in defining if not _is_stub(blocks[at].text)] or defining
    parts = names.keys() - defining
    last = ""
    for at in reversed(kernels):
        chosen, missing = {at}, set(names[at].missing)
        while added := [part for part in parts - chosen if names[part].bound & missing]:
            chosen.update(added)
            missing.update(*(names[part].missing for part in added))
            missing.difference_update(*(names[part].bound for part in chosen))
        source = _joined([blocks[part] for part in sorted(chosen)])
        if not missing:
            return source
        last = last or source
    return last


def _joined(blocks: Sequence[Block]) -> str:
    return "\n\n\n".join(block.text.strip("\n") for block in blocks) + "\n"


def _names_of(source: str) -> _Names:
    try:
        top = symtable.symtable(source, "kernel.py", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return _Names(frozenset(), frozenset())
    symbols = [symbol for table in _tables(top) for symbol in table.get_symbols()]
    bound = {
        symbol.get_name()
        for symbol in (*top.get_symbols(), *(symbol for symbol in symbols if symbol.is_declared_global()))
        if symbol.is_assigned() or (symbol.is_imported() and symbol.get_name() != "solution")  # a test imports it
    }
    used = {symbol.get_name() for symbol in symbols if symbol.is_referenced() and symbol.is_global()}
    known = bound | set(dir(builtins)) | {"__file__", "__name__"}
    star = re.search(r"^[ \t]*from\b.*\bimport[ \t]*\*", source, re.MULTILINE)
    return _Names(frozenset(bound), frozenset() if star else frozenset(used - known))


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def _is_stub(source: str) -> bool:
    """Whether the body of `solution` is only a docstring, `...` or `pass`."""
    found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == "solution"]
    return bool(found) and all(
        isinstance(line, ast.Pass) or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        for line in found[-1].body
    )


def join_continuation(text: str, more: str) -> str:
    """Joins a truncated answer and its continuation.

    Drops an introductory sentence, a repeated opening fence and repeated text from the continuation.
    """
    blocks = blocks_of(text)
    if blocks and not blocks[-1].closed:
        head = _PREAMBLE.sub("", more, count=1)
        said = head != more
        first, newline, rest = head.lstrip("\n").partition("\n")
        # A bare fence opens a block if another fence closes it. Alone it closes the truncated block.
        opening = opening_of(first) is not None and (
            first.strip() != _FENCE or said or len(_FENCES.findall(head)) % 2 == 0
        )
        if newline and opening:
            if has_whole_kernel(head):  # the model repeated the answer from its start
                return f"{text}\n{_FENCE}\n{_AGAIN}{head}"
            more = rest
        elif said:
            more = head
    tail = text[-_OVERLAP:]
    for length in range(min(len(tail), len(more)), 0, -1):
        if tail.endswith(more[:length]):
            repeated = more[:length]
            if length >= _WHOLE_LINE or (repeated.strip() and repeated.endswith("\n")):
                return text + more[length:]
            break
    return text + more
