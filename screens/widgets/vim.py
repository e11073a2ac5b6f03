"""Vim's keys: a machine that turns keys into a new text, cursor and selection. It draws nothing and needs no screen.

Places are offsets into the text. Every key is one character: "\r" is enter, "\b" backspace, "\x04" ctrl+d.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple

from screens.widgets.text_lines import Place, dedented, indented, next_indent, pattern_of

MOST_TIMES, MOST_WRITTEN = 9_999, 1_000_000
"""The largest count, and about the most characters that one command writes."""
KEYS = {"left": "h", "right": "l", "up": "k", "down": "j", "home": "0", "end": "$", "delete": "x", "enter": "\r"}
KEYS |= {"backspace": "\b", "pageup": "\x02", "pagedown": "\x06", "ctrl+z": "u"}
KEYS |= {"ctrl+d": "\x04", "ctrl+u": "\x15", "ctrl+r": "\x12", "ctrl+y": "\x12"}
KEYS |= dict.fromkeys(("tab", "shift+tab", "ctrl+k", "ctrl+w"), "\0")
"""The character of each key that writes none. "\0" does nothing."""
_WHAT = r"([/?:][^\r]*\r|[fFtTrgzZmq@'`\"\[\]].|%s|[^/?:fFtTrgzZmq@'`\"\[\]ia])"
_NORMAL = re.compile(r"([1-9]\d*+)?+(?:(g[uU~]|[dcy<>])([1-9]\d*+)?+)?+" + _WHAT % "(?(2)[ia].|[ia])", re.DOTALL)
_VISUAL = re.compile(r"([1-9]\d*+)?+()()" + _WHAT % "[ia].", re.DOTALL)
"""A whole command: count, operator, second count, and a motion, a text object or another command."""
_OPERATORS = ("d", "c", "y", "<", ">", "gu", "gU", "g~")
_SHORT = {"x": "dl", "X": "dh", "s": "cl", "S": "cc", "D": "d$", "C": "c$", "Y": "yy"}
_SELECTED = {"x": "d", "s": "c", "~": "g~", "u": "gu", "U": "gU"}
_SELECTED_LINES = {"X": "d", "D": "d", "S": "c", "C": "c", "R": "c", "Y": "y"}
_ASKED = {"u": "undo", "\x12": "redo", "zz": "center", ":w": "save", ":q": "leave"}
_ASKED |= dict.fromkeys((":wq", ":x", "ZZ"), "save and leave")
_SUBSTITUTE = re.compile(r"(%?)s/((?:\\.|[^\\/])+)/((?:\\.|[^\\/])*)/?(g?)")
"""`:s/this/that/g`: whether all lines, the text to find, its replacement, whether each place of a line."""
_INCLUSIVE = {*"eE$%ft", "ge", "gE"}
_LINEWISE = {*"jkG\r-\x04\x15\x06\x02", "gg"}
_PAIRS = {**dict.fromkeys("()b", "()"), **dict.fromkeys("[]", "[]"), **dict.fromkeys("{}B", "{}")}


class Span(NamedTuple):
    """A part of the text. Of whole lines, it is without the newline of the last one."""

    start: int
    end: int
    linewise: bool = False


class Command(NamedTuple):
    """A command: `3dw` has the count 3 and the operator d, and is for w."""

    times: int
    """Its count; 0: none was typed."""
    operator: str
    what: str
    """A motion, a text object, or a command without operator: "w", "fx", "i(", "/term"."""
    size: tuple[int, int] = (0, 0)
    """Of a command of visual mode: lines of its selection, and columns in the last one; 0: whole lines."""


@dataclass
class Registers:
    """What all editors share: the text that was deleted or yanked last, and the last search."""

    text: str = ""
    linewise: bool = False
    search: re.Pattern[str] | None = None
    backward: bool = False


def parse(keys: str, *, visual: bool) -> Command | None:
    """Returns the command that the keys are; None while more are needed. Any keys are a command at last."""
    found = (_VISUAL if visual else _NORMAL).fullmatch(keys)
    if found is None:
        return None
    counts = [int(digits[:5]) for digits in found.group(1, 3) if digits]
    count = min(counts[0] * counts[-1] if len(counts) > 1 else sum(counts), MOST_TIMES)
    return Command(count, found[2] or "", {" ": "l", "\b": "h", "+": "\r"}.get(found[4], found[4]))


# --- places in a text -----------------------------------------------------------------------------------------


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def place_at(text: str, at: int) -> Place:
    """Returns line and column."""
    return text.count("\n", 0, at), at - line_start(text, at)


def on_character(text: str, at: int) -> int:
    """Returns the nearest place of a block cursor: a character, or an empty line."""
    at = max(0, min(at, len(text)))
    return max(line_start(text, at), min(at, line_end(text, at) - 1))


def indent_end(text: str, at: int) -> int:
    """Returns the end of the line's indentation."""
    line = text[line_start(text, at) : line_end(text, at)]
    return line_start(text, at) + len(line) - len(line.lstrip())


def lines_around(text: str, first: int, last: int) -> Span:
    return Span(line_start(text, min(first, last)), line_end(text, max(first, last)), linewise=True)


def rows_away(text: str, at: int, rows: int) -> int:
    """Returns the start of the line so many rows below, or above if negative; at most that of the last or first one."""
    start = line_start(text, at)
    for _ in range(abs(rows)):
        there = line_end(text, start) + 1 if rows > 0 else line_start(text, start - 1) if start else -1
        if not 0 <= there <= len(text):
            break
        start = there
    return start


def _nearest(pattern: str, *, back: bool = False) -> Callable[[str, int, int], int | None]:
    """A motion to the next or the previous match of a pattern, or to the end or start of the text."""
    compiled = re.compile(pattern, re.MULTILINE)

    def move(text: str, at: int, count: int) -> int | None:
        found = compiled.finditer(text, 0, at + 1) if back else compiled.finditer(text, at)
        places = (each.start() for each in found if (each.start() < at if back else each.start() > at))
        nearest = list(places)[-count:] if back else list(islice(places, count))
        end = 0 if back else len(text)
        return nearest[0 if back else -1] if len(nearest) == count else end if at != end else None

    return move


def _matching(text: str, at: int, count: int) -> int | None:
    found = re.search(r"[()\[\]{}]", text[at : line_end(text, at)])
    if found is None:
        return None
    pair, at = _PAIRS[found[0]], at + found.start()
    return _bracket(text, at + 1, pair, 1) if found[0] == pair[0] else _bracket(text, at - 1, pair, -1)


def _bracket(text: str, at: int, pair: str, step: int, depth: int = 1) -> int | None:
    """Returns where the bracket is that closes (step 1) or opens (-1) the pair around `at`. depth: of nested pairs."""
    while 0 <= at < len(text):
        depth += {pair[0]: step, pair[1]: -step}.get(text[at], 0)
        if depth == 0:
            return at
        at += step
    return None


_STARTS, _ENDS = r"(?<!\w)\w|(?<![^\w\s])[^\w\s]|^$", r"\w(?!\w)|[^\w\s](?![^\w\s])"
_MOTIONS: dict[str, Callable[[str, int, int], int | None]] = {
    "h": lambda text, at, count: max(line_start(text, at), at - count),
    "l": lambda text, at, count: min(line_end(text, at), at + count),
    "0": lambda text, at, count: line_start(text, at),
    "^": lambda text, at, count: indent_end(text, at),
    "$": lambda text, at, count: on_character(text, line_end(text, rows_away(text, at, count - 1))),
    "|": lambda text, at, count: min(line_start(text, at) + count - 1, line_end(text, at)),
    "w": _nearest(_STARTS),
    "W": _nearest(r"(?<!\S)\S|^$"),
    "b": _nearest(_STARTS, back=True),
    "B": _nearest(r"(?<!\S)\S|^$", back=True),
    "e": _nearest(_ENDS),
    "E": _nearest(r"\S(?!\S)"),
    "ge": _nearest(rf"{_ENDS}|^$", back=True),
    "gE": _nearest(r"\S(?!\S)|^$", back=True),
    "}": _nearest(r"(?<=[^\n]\n)(?=\n)"),
    "{": _nearest(r"^(?=\n[^\n])", back=True),
    "%": _matching,
}


# --- text objects ---------------------------------------------------------------------------------------------


def text_object(text: str, at: int, name: str, count: int) -> Span | None:
    """Returns the part of the text that a text object is, as `i(`; None: there is none here."""
    inner, kind = name[0] == "i", name[1:]
    if kind in ("w", "W"):
        return _words(text, at, r"\s+|\S+" if kind == "W" else r"\s+|\w+|[^\w\s]+", count, inner=inner)
    if kind in ('"', "'", "`"):
        start = line_start(text, at)
        pattern = rf"([ \t]*)({kind}((?:\\.|[^\\{kind}])*){kind})([ \t]*)"
        for found in re.finditer(pattern, text[start : line_end(text, at)]):
            if start + found.end(3) >= at:  # with the blanks behind it, or those in front of it
                first, last = (3, 3) if inner else (2, 4) if found[4] else (1, 2)
                return Span(start + found.start(first), start + found.end(last))
    if kind == "p":
        return _paragraph(text, at, inner=inner)
    return _bracketed(text, at, _PAIRS[kind], count, inner=inner) if kind in _PAIRS else None


def _words(text: str, at: int, parts: str, count: int, *, inner: bool) -> Span | None:
    start = line_start(text, at)
    found = list(re.finditer(parts, text[start : line_end(text, at)]))
    first = next((number for number, part in enumerate(found) if part.end() > at - start), None)
    if first is None:
        return None
    blank, last = [part[0].isspace() for part in found], first - 1
    for _ in range(min(count, len(found))):
        last = min(last + 1, len(found) - 1)
        if not inner and last + 1 < len(found) and blank[last] != blank[last + 1]:
            last += 1
    if not inner and first and not blank[first] and not blank[last]:
        first -= blank[first - 1]  # without blanks behind the word, those in front of it
    return Span(start + found[first].start(), start + found[last].end())


def _bracketed(text: str, at: int, pair: str, count: int, *, inner: bool) -> Span | None:
    opening = _bracket(text, at if text[at : at + 1] == pair[0] else at - 1, pair, -1, count)
    if opening is None:  # outside of all pairs: the next one
        opening = text.find(pair[0], at)
    closing = _bracket(text, opening + 1, pair, 1) if opening >= 0 else None
    if closing is None:
        return None
    first, last = opening + 2, line_start(text, closing) - 1
    if inner and text[first - 1] == "\n" and first <= last and not text[last:closing].strip():
        return Span(first, last, linewise=True)  # the lines between those of the brackets
    return Span(opening + inner, closing + (not inner))


def _paragraph(text: str, at: int, *, inner: bool) -> Span:
    blocks = list(re.finditer(r"(?:^[ \t]*(?:\n|\Z))+|(?:^[ \t]*\S.*(?:\n|\Z))+", text, re.MULTILINE))
    first = last = next((number for number, block in enumerate(blocks) if block.end() > at), len(blocks) - 1)
    if not inner:
        first, last = (first, last + 1) if last + 1 < len(blocks) else (max(first - 1, 0), last)
    return lines_around(text, blocks[first].start(), max(blocks[last].end() - 1, 0))


# --- the machine ----------------------------------------------------------------------------------------------


@dataclass
class Vim:
    """The state of one editor: its mode, the keys of an unfinished command, and the last change."""

    registers: Registers = field(default_factory=Registers)
    indent: int = 4
    mode: Literal["NORMAL", "INSERT", "VISUAL", "V-LINE"] = "NORMAL"
    text: str = ""
    cursor: int = 0
    """The moving end of a selection, which is part of it."""
    anchor: int = 0
    """The other end of a selection."""
    asks: tuple[str, int] = ("", 1)
    """Of the editor, and how often: "", "copy", one of `_ASKED`, or a command that does not exist."""
    term: str = ""
    """The search term whose matches are to be highlighted."""
    page: int = 20
    """Rows of the pane."""
    keys: str = ""
    """Those of an unfinished command."""
    _column: int | None = None
    """The column that vertical motions aim at."""
    _found: str = ""
    """The last search in a line: "fx"."""
    _last: Command | None = None
    """The last change, for `.`."""
    _begun: tuple[str, int, int] = ("", 0, 1)
    """Text and cursor at the start of insert mode, and how often what is typed is to be written."""
    _typed: tuple[int, int, str] = (0, 0, "")
    """Of the last insert: characters deleted in front of and behind its start, and the text."""

    @property
    def selecting(self) -> bool:
        return self.mode in ("VISUAL", "V-LINE")

    @property
    def _selected(self) -> Span:
        first, last = sorted((self.anchor, self.cursor))
        whole = self.mode == "V-LINE"
        return lines_around(self.text, first, last) if whole else Span(first, min(last + 1, len(self.text)))

    @property
    def selection(self) -> tuple[int, int]:
        """Anchor and cursor as an editor draws them: the character at its cursor is not in its selection."""
        if self.mode == "V-LINE":
            start, end, _ = self._selected
            return (start, end) if self.anchor <= self.cursor else (end, start)
        return self.anchor + (self.anchor > self.cursor) if self.mode == "VISUAL" else self.cursor, self.cursor

    def point(self, anchor: int, cursor: int) -> None:
        """Takes over a cursor or a selection that the mouse or another key has set."""
        if self.mode != "INSERT":
            self.mode, self._column = "NORMAL" if anchor == cursor else "VISUAL", None
            self.anchor, self.cursor = anchor - (anchor > cursor), cursor - (anchor < cursor)

    def leave(self, text: str, cursor: int) -> bool:
        """Handles escape: ends an unfinished command or a mode. Returns False if there is none to end."""
        mode, nothing = self.mode, (self.mode, self.keys) == ("NORMAL", "")
        self.text, self.asks, self.mode, self.keys, self.term = text, ("", 1), "NORMAL", "", ""
        if mode == "INSERT":
            self._end_insert(cursor)
        return not nothing

    def press(self, key: str, text: str) -> None:
        """Handles a key of normal or visual mode."""
        self.text, self.asks, self.term = text, ("", 1), ""
        self.cursor, self.anchor = on_character(text, self.cursor), on_character(text, self.anchor)
        line = parse(f"{self.keys}\r", visual=self.selecting)  # "/al" is a whole command with the enter
        typing = line is not None and line.what[0] in "/?:"
        self.keys = self.keys[:-1] if typing and key == "\b" else self.keys + key
        if line is not None and line.what[0] in "/?":
            self.term = self.keys.partition(line.what[0])[2]
        if (command := parse(self.keys, visual=self.selecting)) is not None:
            self.keys, self.term = "", ""
            self._run(command)
        if self.mode != "INSERT":
            self.cursor = on_character(self.text, self.cursor)

    def _run(self, command: Command) -> None:
        if not self.selecting and not command.operator and (long := _SHORT.get(command.what)):
            command = command._replace(operator=long[0], what=long[1])
        if self.selecting and self._on_selection(command):
            pass
        elif command.operator:
            if (span := self._span(command)) is not None:
                self._operate(command, span)
        elif (place := self._moved(command.what, command.times)) is not None:
            self.cursor = on_character(self.text, place)
        elif not self.selecting:
            self._run_simple(command)

    # --- motions ------------------------------------------------------------------------------------------------

    def _moved(self, what: str, count: int) -> int | None:
        """Returns where a motion leads; None if it leads nowhere, or is none."""
        text, at, number, page = self.text, self.cursor, count or 1, self.page
        column, self._column = self._column, len(text) if what == "$" else None
        rows = {"j": 1, "\r": 1, "\x04": page // 2, "\x06": page}
        rows |= {"k": -1, "-": -1, "\x15": -(page // 2), "\x02": -page}
        if what in rows:
            start = rows_away(text, at, rows[what] * number)
            if what in ("\r", "-"):
                return indent_end(text, start) if start != line_start(text, at) else None
            self._column = at - line_start(text, at) if column is None else column
            return min(start + self._column, line_end(text, start)) if start != line_start(text, at) else None
        if what in ("G", "gg"):
            last = line_start(text, len(text) - text.endswith("\n"))  # a newline at the end begins no line of vim's
            return indent_end(text, rows_away(text, 0, count - 1) if count or what == "gg" else last)
        if what[0] in "fFtT;,":
            self._found = what if what[0] not in ";," else self._found
            place = self._in_line(self._again(what), number)
            return self._in_line(self._again(what), number + 1) if place == at and what in ";," else place
        if what[0] in "/?nN*#":
            return self._searched(what, number)
        return _MOTIONS[what](text, at, number) if what in _MOTIONS else None

    def _again(self, what: str) -> str:
        """Returns the search in a line that `;` or `,` repeats."""
        return {";": self._found, ",": self._found[:1].swapcase() + self._found[1:]}.get(what, what)

    def _in_line(self, what: str, count: int) -> int | None:
        at, start, end = self.cursor, line_start(self.text, self.cursor), line_end(self.text, self.cursor)
        there = range(at + 1, end) if what[:1] in ("f", "t") else range(at - 1, start - 1, -1)
        places = [place for place in there if self.text[place] == what[1:]]
        return places[count - 1] - {"t": 1, "T": -1}.get(what[0], 0) if len(places) >= count else None

    def _searched(self, what: str, count: int) -> int | None:
        shared, at = self.registers, self.cursor
        if what in "*#":
            words = re.finditer(r"\w+", self.text[: line_end(self.text, at)])
            if (word := next((each for each in words if each.end() > at), None)) is None:
                return None
            at, shared.search, shared.backward = word.start(), re.compile(rf"\b{word[0]}\b"), what == "#"
        elif what[0] in "/?":
            shared.search, shared.backward = pattern_of(what[1:-1]) or shared.search, what[0] == "?"
        found = list(shared.search.finditer(self.text)) if shared.search is not None else []
        if not found:
            return None
        self.term, places = found[0][0], [each.start() for each in found]
        back = shared.backward != (what == "N")
        return places[(bisect_left(places, at) - count if back else bisect_right(places, at) + count - 1) % len(places)]

    def _span(self, command: Command) -> Span | None:
        """Returns what an operator is for."""
        text, at, what, count = self.text, self.cursor, command.what, command.times or 1
        rows, columns = command.size
        if rows:  # as many lines or columns as the selection had
            start = rows_away(text, at, rows - 1)
            end = min((at if rows == 1 else start) + columns - 1, line_end(text, start))
            return Span(at, end) if columns else lines_around(text, at, start)
        if what == command.operator[-1]:
            return lines_around(text, at, rows_away(text, at, count - 1))
        if len(what) == 2 and what[0] in "ia":
            found = text_object(text, at, what, count)
            self.cursor = found.start if found is not None and found.linewise else at
            return found
        if what in ("w", "W") and count == 1 and line_start(text, at) == line_end(text, at):
            return lines_around(text, at, at)
        on_word = what in ("w", "W") and not text[at : at + 1].isspace()
        if on_word and command.operator == "c":  # up to the word's end
            what, place = "e", _MOTIONS["e" if what == "w" else "E"](text, at - 1, count)
        else:
            place = self._moved(what, command.times)
        if place is None:
            return None
        if what in _LINEWISE:
            self.cursor = min(at, place)
            return lines_around(text, at, place)
        start, end = sorted((at, place))
        if self._again(what)[: 1 + (what[0] == "g")] in _INCLUSIVE:
            return Span(start, min(end + 1, line_end(text, end)))
        if what in ("w", "W") and (last := len(text[:end].rstrip())) <= line_end(text, max(last - 1, 0)) < end:
            return Span(start, last if on_word else line_end(text, start))  # not beyond the last word's line
        if start < line_start(text, end) == end:
            self.cursor = start
            return lines_around(text, start, end - 1) if start <= indent_end(text, start) else Span(start, end - 1)
        return Span(start, end)

    # --- changes --------------------------------------------------------------------------------------------------

    def _on_selection(self, command: Command) -> bool:
        """Runs a command of visual mode; returns False if it may be a motion."""
        what, span, shared = command.what, self._selected, self.registers
        cut = self.text[span.start : span.end]
        operator = _SELECTED.get(what, _SELECTED_LINES.get(what, what))
        if what in ("v", "V"):
            wanted: Literal["VISUAL", "V-LINE"] = "V-LINE" if what == "V" else "VISUAL"
            self.mode = "NORMAL" if self.mode == wanted else wanted
        elif what in ("o", "O"):
            self.anchor, self.cursor = self.cursor, self.anchor
        elif len(what) == 2 and what[0] in "ia":
            found = text_object(self.text, self.cursor, what, command.times or 1)
            if found is not None and found.end > found.start:
                self.anchor, self.cursor = found.start, found.end - 1
                if found.linewise:
                    self.cursor, self.mode = line_start(self.text, found.end), "V-LINE"
        elif operator in _OPERATORS:
            span = lines_around(self.text, self.anchor, self.cursor) if what in _SELECTED_LINES else span
            size = cut.count("\n") + 1, 0 if span.linewise else len(cut) - cut.rfind("\n")
            self.mode, self.cursor = "NORMAL", span.start
            self._operate(command._replace(operator=operator, what="", size=size), span)
        elif what in ("p", "P", "J") or what[0] == "r":
            new = f"\n{shared.text}\n" if shared.linewise > span.linewise else shared.text
            self.mode, self.cursor = "NORMAL", span.start
            if what == "J":
                self._join(cut.count("\n"))
            elif what[0] == "r":
                self._replace(span.start, span.end, re.sub(r".", lambda _: what[1], cut))
            else:
                self._replace(span.start, span.end, new)
                shared.text, shared.linewise = cut, span.linewise
        else:
            return False
        return True

    def _operate(self, command: Command, span: Span) -> None:
        operator, (start, end, linewise), text = command.operator, span, self.text[span.start : span.end]
        if operator in "dcy" and (text or linewise):
            self.registers.text, self.registers.linewise = text, linewise
        if operator == "y":
            self.cursor, self.asks = max(start, self.cursor) if linewise else start, ("copy", 1)
            return
        self._last = command
        if operator == "c":
            kept = indent_end(self.text, start) if linewise else start
            self._replace(kept, end, "")
            self._insert_at(kept)
            return
        if operator == "d" and linewise:  # with the newline behind it, or that in front of the last line
            self._replace(*((start, end + 1) if end < len(self.text) else (max(start - 1, 0), end)), "")
        elif operator in "<>":
            start, end, linewise = lines_around(self.text, start, max(start, end - 1))
            lines = self.text[start:end].split("\n")
            width = self.indent * (command.times or 1 if command.size[0] else 1)
            self._replace(start, end, "\n".join(indented(lines, width) if operator == ">" else dedented(lines, width)))
        else:
            changed = {"d": "", "gu": text.lower(), "gU": text.upper(), "g~": text.swapcase()}
            self._replace(start, end, changed[operator])
            if linewise and operator != "d":
                self.cursor = start if command.size[0] or command.what == operator[-1] else self.cursor
                return
        self.cursor = indent_end(self.text, min(start, len(self.text))) if linewise else start

    def _replace(self, start: int, end: int, new: str) -> None:
        self.text = self.text[:start] + new + self.text[end:]

    def _run_simple(self, command: Command) -> None:
        """Runs a command that is neither a motion nor an operator. One that does not exist does nothing."""
        what, text, at, count = command.what, self.text, self.cursor, command.times or 1
        start, end = line_start(text, at), line_end(text, at)
        places = {"i": at, "a": min(at + 1, end), "A": end, "I": indent_end(text, at)}
        if what in places:
            self._insert_at(places[what], count)
        elif what in ("o", "O"):
            indent = text[start : indent_end(text, at)] if what == "O" else next_indent(text[start:end], self.indent)
            self._replace(*((start, start, f"{indent}\n") if what == "O" else (end, end, f"\n{indent}")))
            self._insert_at(len(indent) + (start if what == "O" else end + 1), count)
        elif what in ("p", "P"):
            self._paste(count, before=what == "P")
        elif what == "J":
            self._join(count - 1)
        elif what == "~":
            self.cursor = min(at + count, end)
            self._replace(at, self.cursor, text[at : self.cursor].swapcase())
        elif what[0] == "r" and at + count <= end:
            behind = text[at + count : end].lstrip()
            indent = text[start : min(indent_end(text, at), at)] if behind else ""
            if what == "r\r":
                self._replace(at, end, f"\n{indent}{behind}")
            else:
                self._replace(at, at + count, what[1] * count)
            self.cursor = at + max(1, len(indent)) if what == "r\r" else at + count - 1
        else:
            self._run_other(what, command.times)
            return
        self._last = command

    def _run_other(self, what: str, count: int) -> None:
        """Runs a command that `.` does not repeat."""
        line = what[1:].strip() if what[0] == ":" else ""
        if what in ("v", "V"):
            self.anchor, self.mode = self.cursor, "VISUAL" if what == "v" else "V-LINE"
        elif what == "." and self._last is not None:
            self._repeat(self._last._replace(times=count or self._last.times))
        elif line.isdecimal():
            self.cursor = indent_end(self.text, rows_away(self.text, 0, int(line[:9]) - 1))
        elif (substitution := _SUBSTITUTE.fullmatch(line)) is not None:
            self._substitute(*substitution.groups())
        else:
            asked = _ASKED.get(f":{line.rstrip('!')}" if line else what)
            self.asks = asked or (what.rstrip("\r") if what[0] in ":mq@'`\"[]Z" else ""), count or 1

    def _substitute(self, all_lines: str, term: str, new: str, each: str) -> None:
        """Replaces a plain text in the cursor's line or in all lines. The cursor goes to the last line that changed."""
        term, new = (re.sub(r"\\(.)", r"\1", words) for words in (term, new))
        start, end, _ = lines_around(self.text, *((0, len(self.text)) if all_lines else (self.cursor, self.cursor)))
        before, pattern = self.text[start:end].split("\n"), pattern_of(term)
        assert pattern is not None, "a term has a character"
        after = [pattern.sub(lambda _: new, line, 0 if each else 1) for line in before]
        rows = [row for row, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
        self._replace(start, end, "\n".join(after))
        if rows:
            self.cursor = indent_end(self.text, rows_away(self.text, start, rows[-1]))

    def _join(self, times: int) -> None:
        """Joins the next lines to the cursor's, with a blank between them."""
        for _ in range(max(times, 1)):
            if (end := line_end(self.text, self.cursor)) < len(self.text):
                after = indent_end(self.text, end + 1)
                close = not end or self.text[end - 1] in " \n" or self.text[after : after + 1] in ("", "\n", ")")
                self._replace(end, after, "" if close else " ")
                self.cursor = end

    def _paste(self, count: int, *, before: bool) -> None:
        text, at, new, linewise = self.text, self.cursor, self.registers.text, self.registers.linewise
        new = repeated(f"{new}\n" if linewise else new, count)
        if linewise:
            place = line_start(text, at) if before else line_end(text, at)
            self._replace(place, place, new if before else f"\n{new[:-1]}")
            self.cursor = indent_end(self.text, place + (not before))
        elif new:
            place = at if before else min(at + 1, line_end(text, at))
            self._replace(place, place, new)
            self.cursor = place if "\n" in new else place + len(new) - 1

    def _insert_at(self, place: int, times: int = 1) -> None:
        self.mode, self.cursor, self._begun = "INSERT", place, (self.text, place, times)

    def _end_insert(self, cursor: int) -> None:
        """Records what was typed in insert mode, and writes it as often as the count says."""
        before, begun, times = self._begun
        kept = common_start(before[:begun], self.text)
        behind = common_start(before[begun:][::-1], self.text[kept:][::-1])
        typed = self.text[kept : len(self.text) - behind]
        self._typed = begun - kept, len(before) - begun - behind, typed
        if typed and times > 1:
            opened = self._last is not None and self._last.what in ("o", "O")
            indent = self.text[line_start(self.text, cursor) : indent_end(self.text, cursor)]
            more = repeated(f"\n{indent}{typed}" if opened else typed, times - 1)
            self._replace(cursor, cursor, more)
            cursor += len(more)
        self.cursor = max(line_start(self.text, cursor), cursor - 1)

    def _repeat(self, command: Command) -> None:
        """Runs the last change again."""
        self._run(command)
        if self.mode == "INSERT":
            back, ahead, typed = self._typed
            start, written = max(self.cursor - back, 0), repeated(typed, self._begun[2])
            self._replace(start, self.cursor + ahead, written)
            self.mode, self.cursor = "NORMAL", max(start + len(written) - 1, line_start(self.text, start))


def common_start(one: str, other: str) -> int:
    """Returns how many characters two texts have in common at their start."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def repeated(text: str, times: int) -> str:
    """Returns the text so often as asked, or as `MOST_WRITTEN` allows."""
    return text * max(1, min(times, MOST_WRITTEN // max(len(text), 1)))
