"""Parses fenced blocks of a model's Markdown. Accepts common mistakes of models, and skips their reasoning."""

import ast
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

_MARKER = re.compile(r"^[ \t]*(?:(?:[-*+]|\d+[.)]|>)[ \t]*)*$")
"""Text allowed before a fence: indentation, and markers of lists or quotations."""
_INFO = re.compile(r"^\S*$|^\S+[ \t].*[={]|^[^\s:,{]*[Pp]y(thon)?\b")
"""Info string of an opening fence that comes before the previous block is closed: a language, maybe with attributes."""
_PYTHON = re.compile(r"^(py|python|ipython)?\d*(\.\d+)?$|.*\.py$")
PATH = r"(?:[\w+@][\w.+@-]*/)*[\w+@][\w.+@-]*\.(?:py|cuh?|c|cc|cpp|cxx|h|hpp)"
_FILE = re.compile(rf"""(?:^|[\s:="'{{])({PATH})(?=$|[\s"',}}])""")
"""A file's path in the info string of a fence: "cuda ops/sum.cu", "cpp:sum.cpp", 'python title="kernel.py"'."""
_TITLE = re.compile(
    rf"[\s#*_>`\d./)=-]*(?:(?:file|filename|path)\b[\s:*`]*)?(?<![\w./-])({PATH})[\s*_`:/#=-]*", re.IGNORECASE
)
"""A line before a fence, or the first one in it, that only names a file: "### `ops/sum.cu`", "// file: sum.cpp"."""
THOUGHTS = "think|thinking|thought|reasoning|analysis|reflection|scratchpad|inner_monologue"
"""The tags in which models reason."""
_LONGEST = 400
"""Characters before a fence in which the line that names its file is searched."""
_THOUGHT = re.compile(rf"(?:[<◁]|\[(?=/?(?-i:THINK)\]))(/?)(?:{THOUGHTS})[]>▷]", re.IGNORECASE)
LANGUAGE = re.compile(r"\A\s*(?:python|py)3?\n", re.IGNORECASE)
"""The language on a line of its own before the code."""
_CODE = re.compile(r"^\S+ +((?:import|from|def) .*)")
"""Code in the line of its opening fence, after the language."""
_MOST_TRIES = 50
"""How often a fence behind code may turn out not to close its block: each time the whole block is parsed."""
_INDENTED = 3
"""Maximum number of columns that a closing fence may be to the right of its opening fence."""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    """In lower case, without a file's name or attributes; "python" for every alias of Python."""
    text: str
    closed: bool
    name: str = ""
    """Path of the block's file, if the fence names one: "ops/sum.cu"."""


@dataclass
class Answer:
    """The parts of a text. `thinking`: whether it ends within reasoning that is not closed."""

    blocks: list[Block] = field(default_factory=list)
    plain: str = ""
    """The text outside of blocks and reasoning."""
    thinking: bool = False
    thought: str = ""
    """The reasoning that is not closed."""
    rest: list[str] = field(default_factory=list)
    """The lines after the last closed block of Python that defines `solution`."""


@dataclass
class _Open:
    fence: str
    language: str
    column: int
    quoted: bool
    name: str = ""
    lines: list[str] = field(default_factory=list)

    def block(self, closed: bool) -> Block:
        first = next((line for line in self.lines if line.strip()), "")
        column = min(self.column, len(first) - len(first.lstrip()))
        text = "".join(line[min(column, len(line) - len(line.lstrip(" \t"))) :] for line in self.lines)
        title = None if self.name else _TITLE.fullmatch(first)
        text = text if self.language else LANGUAGE.sub("", text)
        return Block(self.language, text, closed, title[1] if title else self.name)


def is_python(block: Block) -> bool:
    """Whether a block is Python or has no language."""
    return block.language in ("", "python")


def blocks_of(text: str) -> list[Block]:
    """Returns the fenced blocks outside of reasoning, in order. The last one may be open."""
    return read_answer(text).blocks


def read_answer(text: str) -> Answer:
    """Splits a text into its blocks, the text around them and unclosed reasoning."""
    found = Answer()
    opened: _Open | None = None
    tries = iter(range(_MOST_TRIES))
    lines = deque(text.splitlines(keepends=True))
    while lines:
        line = lines.popleft()
        found.rest.append(line)
        if found.thinking:
            end = next((tag for tag in _THOUGHT.finditer(line) if tag[1]), None)
            if end is None:
                found.thought += _THOUGHT.sub("", line)
                continue
            found.thinking, found.thought = False, ""
            lines.appendleft(line[end.end() :])
        elif opened is not None:
            if line.strip() == "</think>":  # the text does not contain the opening tag
                found, opened = Answer(), None
            elif (after := _after_closing(opened, line, tries)) is not None:
                found.blocks.append(opened.block(True))
                if is_python(last := found.blocks[-1]) and "def solution" in last.text and parses(last.text):
                    found.rest.clear()
                opened = None
                if after:
                    lines.appendleft(after)
            else:
                opened.lines.append(re.sub(r"^[ \t]*> ?", "", line) if opened.quoted else line)
        elif thought := _THOUGHT.search(line):
            if thought[1]:
                found = Answer()
            else:
                found.plain += line[: thought.start()]
                found.thinking = True
            lines.appendleft(line[thought.end() :])
        elif (opened := opening_of(line)) is None:
            found.plain += line
        elif not opened.name and (title := _TITLE.fullmatch(found.plain[-_LONGEST:].rstrip().rpartition("\n")[2])):
            opened.name = title[1]
    if opened is not None:
        found.blocks.append(opened.block(False))
    return found


def opening_of(line: str) -> _Open | None:
    """Returns the block that a line outside of blocks opens; None if it opens none."""
    line = line.rstrip("\r\n")
    mark = "`" if "`" in line else "~"  # a line that has a backtick cannot be an opening fence of tildes
    before, fence, rest = line.partition(3 * mark)
    info = rest.lstrip(mark)
    if not fence or "`" in before or "`" in info:
        return None
    fence += mark * (len(rest) - len(info))
    info = info.lstrip(" \t")
    language = _language(info)
    named = _FILE.search(info)
    name = named[1] if named else ""
    code = [f"{found[1]}\n"] if language == "python" and (found := _CODE.match(info)) else []
    if _MARKER.match(before):
        return _Open(fence, language, 0 if code else len(before), ">" in before, name, code)
    if language == "python" or (not info and before.rstrip().endswith((":", ">"))):
        return _Open(fence, language, 0, False, name, code)  # the fence directly follows other text in its line
    return None


def _language(info: str) -> str:
    """Returns "python" for "Py", "py title=kernel.py", "python:kernel.py", "{.python .numberLines}" and "kernel.py"."""
    word = re.split(r"[\s:,;={}]", info.strip().strip("{}. "))[0].lower()
    return "python" if word and _PYTHON.match(word) else word


def _after_closing(opened: _Open, line: str, tries: Iterator[int]) -> str | None:
    """Returns the text after a closing fence in its line, "" for none; None if the line does not close the block."""
    bare = re.sub(r"^[ \t]*> ?", "", line) if opened.quoted else line
    column = len(bare) - len(bare.lstrip())
    bare = bare.strip()
    if bare.startswith(opened.fence) and column <= opened.column + _INDENTED:
        rest = bare.lstrip(opened.fence[0])
        if not rest:
            return ""
        if "`" in rest:
            return None
        return line if _INFO.match(rest.strip()) else rest + "\n"
    code = bare.removesuffix(opened.fence)
    if code == bare or "`" in code or opened.fence[0] != "`" or next(tries, None) is None:
        return None
    # The fence directly follows code in its line. It does not close the block if it is within a string.
    before = _Open("", "", opened.column, False, lines=[*opened.lines, line.replace(opened.fence, "")])
    if not parses(before.block(True).text):
        return None
    opened.lines.append(line.replace(opened.fence, ""))
    return ""


def parses(source: str) -> bool:
    """Whether a text parses as Python."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
