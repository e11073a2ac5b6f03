"""Fenced blocks of a model's Markdown, read as leniently as models write it, without what it thought."""

import ast
import re
from collections import deque
from dataclasses import dataclass, field

_MARKER = re.compile(r"^[ \t]*(?:(?:[-*+]|\d+[.)]|>)[ \t]*)*$")
"""In front of a fence: an indentation, a list's marker or a quotation's."""
_INFO = re.compile(r"^\S*$|^\S+[ \t].*[={]|^[^\s:,{]*[Pp]y(thon)?\b")
"""Of an opening fence behind another block's text: a language, alone or with attributes."""
_PYTHON = re.compile(r"^(py|python|ipython)?\d*(\.\d+)?$|.*\.py$")
_FILE = re.compile(
    r"""(?:^|[\s:="'{])((?:[\w+@][\w.+@-]*/)*[\w+@][\w.+@-]*\.(?:py|cu|cuh|cpp|cc|cxx|c|h|hpp))(?=$|[\s"',}])"""
)
"""A file's path in the info of a fence: "cuda ops/sum.cu", "cpp:sum.cpp", 'python title="kernel.py"'."""
_THOUGHT = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_INDENTED = 3
"""A closing fence is at most so many columns further right than its opening one."""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    """In lower case, without a file's name or attributes; "python" under every name of Python."""
    text: str
    closed: bool
    name: str = ""
    """The path of the file that it is, where the fence names one: "ops/sum.cu"."""


@dataclass
class Answer:
    """What a text holds. `thinking`: it ends within a thought that is still open."""

    blocks: list[Block] = field(default_factory=list)
    plain: str = ""
    """The text outside of blocks and thoughts."""
    thinking: bool = False
    thought: str = ""
    """The open thought."""


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
        return Block(self.language, text, closed, self.name)


def is_python(block: Block) -> bool:
    """A block of Python, or of no language."""
    return block.language in ("", "python")


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks outside of thoughts, in order; the last one may be open."""
    return read_answer(text).blocks


def read_answer(text: str) -> Answer:
    """The blocks, the text beside them and an open thought."""
    found = Answer()
    opened: _Open | None = None
    lines = deque(text.splitlines(keepends=True))
    while lines:
        line = lines.popleft()
        if found.thinking:
            end = _THOUGHT.search(line)
            if end is None or not end[1]:
                found.thought += line
                continue
            found.thinking, found.thought = False, ""
            lines.appendleft(line[end.end() :])
        elif opened is not None:
            if line.strip() == "</think>":  # the thought's begin is not in the text
                found, opened = Answer(), None
            elif (after := _after_closing(opened, line)) is not None:
                found.blocks.append(opened.block(True))
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
        elif (opened := _opening(line)) is None:
            found.plain += line
    if opened is not None:
        found.blocks.append(opened.block(False))
    return found


def opens_block(line: str) -> bool:
    """Whether a line outside of blocks opens one."""
    return _opening(line) is not None


def _opening(line: str) -> _Open | None:
    line = line.rstrip("\r\n")
    mark = "`" if "`" in line else "~"  # with a backtick in its line, no fence of tildes opens a block
    before, fence, rest = line.partition(3 * mark)
    info = rest.lstrip(mark)
    if not fence or "`" in before or "`" in info:
        return None
    fence += mark * (len(rest) - len(info))
    info = info.lstrip(" \t")
    language = _language(info)
    named = _FILE.search(info)
    name = named[1] if named else ""
    if _MARKER.match(before):
        return _Open(fence, language, len(before), ">" in before, name)
    if language == "python" or (not info and before.rstrip().endswith((":", ">"))):
        return _Open(fence, language, 0, False, name)  # glued to the text before it
    return None


def _language(info: str) -> str:
    """ "python" of "Python", "py title=kernel.py", "python:kernel.py", "{.python .numberLines}" and "kernel.py"."""
    word = re.split(r"[\s:,;={}]", info.strip().strip("{}. "))[0].lower()
    return "python" if word and _PYTHON.match(word) else word


def _after_closing(opened: _Open, line: str) -> str | None:
    """What follows on the line that closes a block, "" for nothing; None where the line does not close it."""
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
    if code == bare or "`" in code or opened.fence[0] != "`":
        return None
    # A fence glued to the last line of code, which is none where it is within a string.
    before = _Open("", "", opened.column, False, lines=[*opened.lines, line.replace(opened.fence, "")])
    if not parses(before.block(True).text):
        return None
    opened.lines.append(line.replace(opened.fence, ""))
    return ""


def parses(source: str) -> bool:
    """Whether a text is Python."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
