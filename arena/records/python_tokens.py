"""Splits Python text into the same tokens on all versions of Python. Those of `tokenize` depend on the version."""

import re
from collections.abc import Iterator

NAME, NUMBER, STRING, OPERATOR = 1, 2, 3, 54
NEWLINE, INDENT, DEDENT, END = 4, 5, 6, 0
"""The token numbers of Python 3.11, because stored hashes contain them."""

Token = tuple[int, str]
"""Kind and text. Layout tokens have no text, because the depth of an indentation does not change the code."""

_DIGITS = r"[0-9](?:_?[0-9])*"
_EXPONENT = rf"(?:[eE][-+]?{_DIGITS})"
_FLOAT = rf"(?:(?:{_DIGITS}\.(?:{_DIGITS})?|\.{_DIGITS}){_EXPONENT}?|{_DIGITS}{_EXPONENT})"
_INTEGER = r"(?:0[xX](?:_?[0-9a-fA-F])+|0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0(?:_?0)*|[1-9](?:_?[0-9])*)"
_NUMBER = re.compile(rf"(?:{_DIGITS}|{_FLOAT})[jJ]|{_FLOAT}|{_INTEGER}")
_OPERATOR = re.compile(
    r"\*\*=|//=|<<=|>>=|\.\.\.|\*\*|//|<<|>>|!=|%=|&=|\*=|\+=|-=|->|/=|:=|<=|==|>=|@=|\^=|\|="
    r"|[%&()*+,\-./:;<=>@\[\]^{|}~]"
)
_NAME = re.compile(r"\w+")
_OPENING = re.compile(r"(?i:([bu]?r?|r[bft]?|[ft]r?))('''|\"\"\"|'|\")")
_REST = {
    "'": re.compile(r"[^\n'\\]*(?:\\.[^\n'\\]*)*'", re.DOTALL),
    '"': re.compile(r'[^\n"\\]*(?:\\.[^\n"\\]*)*"', re.DOTALL),
    "'''": re.compile(r"[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''", re.DOTALL),
    '"""': re.compile(r'[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""', re.DOTALL),
}
"""The rest of a string after its opening quotes."""
_SPACE = re.compile(r"[ \f\t]*")
_COMMENT = re.compile(r"#[^\n]*")
_TAB = 8


def python_tokens(source: str) -> list[Token]:
    """Returns all tokens except comments and line breaks inside statements. A string is one token, as it is written.

    Raises:
        ValueError: the text is not Python.
    """
    try:
        return list(_tokens(source.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")))
    except (IndexError, RecursionError) as error:
        raise ValueError("the text ends in a string, or strings are nested too deeply") from error


def _tokens(text: str) -> Iterator[Token]:
    indents, depth, at, begins = [0], 0, 0, True
    while at < len(text):
        if begins:
            at, column = _indentation(text, at)
            if at == len(text):
                break
            if text[at] in "#\n":
                at = _line_end(text, at)
                continue
            if column > indents[-1]:
                indents.append(column)
                yield INDENT, ""
            while column < indents[-1]:
                indents.pop()
                yield DEDENT, ""
            if column != indents[-1]:
                raise ValueError("an unindent matches no outer indentation")
            begins = False
        at = _match_end(_SPACE, text, at)
        if text.startswith("#", at):
            at = _match_end(_COMMENT, text, at)
        elif text.startswith("\n", at):
            at, begins = at + 1, depth == 0
            if begins:
                yield NEWLINE, ""
        elif text.startswith("\\\n", at):
            at += 2
            if at == len(text):
                raise ValueError("the text ends in a statement")
        elif at < len(text):
            kind, end = _token(text, at)
            token = text[at:end]
            if kind == OPERATOR:
                depth = max(depth + (token in "([{") - (token in ")]}"), 0)
            yield kind, token
            at = end
    if depth:
        raise ValueError("the text ends in a statement")
    if not begins:
        yield NEWLINE, ""
    for _ in indents[1:]:
        yield DEDENT, ""
    yield END, ""


def _indentation(text: str, at: int) -> tuple[int, int]:
    """Returns where the indentation ends, and its width in columns."""
    end = _match_end(_SPACE, text, at)
    column = 0
    for sign in text[at:end]:
        column = column + 1 if sign == " " else (column // _TAB + 1) * _TAB if sign == "\t" else 0
    return end, column


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _match_end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    assert found is not None
    return found.end()


def _token(text: str, at: int) -> tuple[int, int]:
    """Returns the kind of the token that begins at `at`, and where it ends."""
    if opening := _OPENING.match(text, at):
        prefix, quotes = opening[1].lower(), opening[2]
        if "f" in prefix or "t" in prefix:
            return STRING, _formatted_end(text, opening.end(), quotes, "r" in prefix)
        if rest := _REST[quotes].match(text, opening.end()):
            return STRING, rest.end()
        raise ValueError("a string has no end")
    for kind, pattern in ((NUMBER, _NUMBER), (OPERATOR, _OPERATOR), (NAME, _NAME)):
        if found := pattern.match(text, at):
            if kind == NAME and not text[at].isidentifier():
                break
            return kind, found.end()
    raise ValueError(f"{text[at]!r} begins no token")


def _formatted_end(text: str, at: int, quotes: str, raw: bool) -> int:
    """Returns where an f-string or t-string ends.

    Its fields may contain any expression, since Python 3.12 also one with the same quotes.
    """
    while not text.startswith(quotes, at):
        if text.startswith("\\N{", at) and not raw:
            at = text.index("}", at)
        elif text[at] == "\\":
            at += 1 if text[at + 1] in "{}" else 2
        elif text.startswith("{{", at):
            at += 2
        elif text[at] == "{":
            at = _field_end(text, at + 1, quotes, raw)
        elif text[at] == "\n" and len(quotes) == 1:
            raise ValueError("a string has no end")
        else:
            at += 1
    return at + len(quotes)


def _field_end(text: str, at: int, quotes: str, raw: bool) -> int:
    """Returns where a field ends, after its closing brace."""
    depth = 0
    while True:
        if text[at].isspace() or (text[at] == "!" and text[at + 1] != "="):
            at += 1
        elif text[at] == "#":
            at = _line_end(text, at)
        elif not depth and text[at] == "}":
            return at + 1
        elif not depth and text[at] == ":":
            return _format_end(text, at + 1, quotes, raw)
        else:
            kind, end = _token(text, at)
            if kind == OPERATOR:
                depth += (text[at:end] in "([{") - (text[at:end] in ")]}")
            at = end


def _format_end(text: str, at: int, quotes: str, raw: bool) -> int:
    """Returns where the field with this format ends, after its closing brace."""
    while text[at] != "}":
        if text.startswith(quotes, at):
            raise ValueError("a string ends in a field")
        at = _field_end(text, at + 1, quotes, raw) if text[at] == "{" else at + 1
    return at + 1
