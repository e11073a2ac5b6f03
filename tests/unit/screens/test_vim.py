"""Vim's keys: a text with its cursor (¦), the keys, and what they make of both."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from screens.widgets.vim import KEYS as NAMES
from screens.widgets.vim import Vim

NAMED = re.compile(r"<([\w+]+)>|(.)", re.DOTALL)
CODE = "def f(a, b):\n    x = g(a, [1, 2])\n\n    return x\n"


def pressed(vim: Vim, text: str, keys: str) -> str:
    """Returns the text after the keys; in insert mode, plain characters are typed. "<escape>" is one key."""
    for name, character in NAMED.findall(keys):
        key = name or character
        if key == "escape":
            vim.leave(text, vim.cursor)
        elif vim.mode != "INSERT":
            vim.press(NAMES.get(key, key), text)
        elif key == "backspace":
            left = max(vim.cursor - 1, 0)
            vim.text, vim.cursor = text[:left] + text[vim.cursor :], left
        else:
            vim.text = text[: vim.cursor] + key + text[vim.cursor :]
            vim.cursor += 1
        text = vim.text
    return text


def after(marked: str, keys: str) -> str:
    at = marked.index("¦")
    vim = Vim(cursor=at)
    text = pressed(vim, marked.replace("¦", ""), keys)
    return f"{text[: vim.cursor]}¦{text[vim.cursor :]}"


@pytest.mark.parametrize(
    ("before", "keys", "then"),
    [
        ("¦one two.x  three", "w", "one ¦two.x  three"),
        ("¦one two.x  three", "3w", "one two.¦x  three"),
        ("¦one two.x  three", "2W", "one two.x  ¦three"),
        ("one two.x  ¦three", "b", "one two.¦x  three"),
        ("one two.x  ¦three", "B", "one ¦two.x  three"),
        ("¦one two", "e", "on¦e two"),
        ("on¦e two\nx", "2e", "one two\n¦x"),
        ("one ¦two", "ge", "on¦e two"),
        ("¦one", "w", "on¦e"),
        ("a¦bc", "$", "ab¦c"),
        ("  ab¦c", "0", "¦  abc"),
        ("  ab¦c", "^", "  ¦abc"),
        ("¦abc", "3|", "ab¦c"),
        ("¦abcdef\nab\nabcdef", "4ljj", "abcdef\nab\nabcd¦ef"),
        ("¦ab\nabcd", "$j", "ab\nabc¦d"),
        ("a\n¦b\nc", "kk", "¦a\nb\nc"),
        ("¦a\n  b\nc", "2G", "a\n  ¦b\nc"),
        ("¦a\nb\nc", "G", "a\nb\n¦c"),
        ("¦a\n  b\n", "G", "a\n  ¦b\n"),
        ("a\nb\n¦c", "gg", "¦a\nb\nc"),
        ("¦a\nb\n\nc", "}", "a\nb\n¦\nc"),
        ("a\n\nb\n¦c", "{", "a\n¦\nb\nc"),
        ("¦f(a, (b))", "%", "f(a, (b)¦)"),
        ("f(a, (b¦))", "%", "f(a, ¦(b))"),
        ("¦a.b.c", "f.", "a¦.b.c"),
        ("¦a.b.c", "2t.", "a.¦b.c"),
        ("¦a.b.c", "f.;", "a.b¦.c"),
        ("¦a.b.c.d", "t.;", "a.¦b.c.d"),
        ("a.b.¦c", "F.;,", "a.b¦.c"),
        ("¦one two one", "/one<enter>", "one two ¦one"),
        ("¦One two one", "/on<backspace>ne<enter>n", "¦One two one"),
        ("¦a x b x c x", "/x<enter>nN", "a ¦x b x c x"),
        ("a x b x ¦c", "?x<enter>n", "a ¦x b x c"),
        ("¦one ones one", "*", "one ones ¦one"),
        ("one ones ¦one", "#", "¦one ones one"),
        ("¦a\nb", ":2<enter>", "a\n¦b"),
        ("¦a\n  b", "<enter>", "a\n  ¦b"),
        ("a\n¦b", "-", "¦a\nb"),
        ("¦a\nb\nc\nd", "<ctrl+d>", "a\nb\nc\n¦d"),
    ],
)
def test_motions(before: str, keys: str, then: str) -> None:
    assert after(before, keys) == then


@pytest.mark.parametrize(
    ("before", "keys", "then"),
    [
        ("¦one two three", "dw", "¦two three"),
        ("¦one two three four", "2dw", "¦three four"),
        ("¦one two three four", "d2w", "¦three four"),
        ("one ¦two\nthree", "dw", "one¦ \nthree"),
        ("one ¦two  three", "cwx<escape>", "one ¦x  three"),
        ("¦one two  three", "c2wx<escape>", "¦x  three"),
        ("one t¦wo", "db", "one ¦wo"),
        ("o¦ne two", "de", "o¦ two"),
        ("one ¦two three", "D", "one¦ "),
        ("one ¦two three", "Cx<escape>", "one ¦x"),
        ("¦", "D", "¦"),
        ("a¦bcd", "2x", "a¦d"),
        ("ab¦cd", "2X", "¦cd"),
        ("a¦bc", "sxy<escape>", "ax¦yc"),
        ("a\n¦b\nc", "dd", "a\n¦c"),
        ("a\n¦b", "dd", "¦a"),
        ("¦a\nb\nc", "2dd", "¦c"),
        ("¦a\nb\nc", "dj", "¦c"),
        ("a\n¦b", "dj", "a\n¦b"),
        ("a\n¦b\nc", "dG", "¦a"),
        ("  ¦ab\nc", "ccx<escape>", "  ¦x\nc"),
        ("¦a, b) c", "dt)", "¦) c"),
        ("¦a, b) c", "df)", "¦ c"),
        ("¦one two one", "d/one<enter>", "¦one"),
        ("¦f(a)(b)", "d%", "¦(b)"),
        ("¦a\nb\n\nc", "d}", "¦\nc"),
        ("f(a, ¦b)", "di(", "f(¦)"),
        ("f(g(¦b), c)", "d2i(", "f(¦)"),
        ("f(a, ¦b)x", "da(", "f¦x"),
        ("f(¦)", "ci(x<escape>", "f(¦x)"),
        ("¦y = f(a)", "ci(x<escape>", "y = f(¦x)"),
        ("f(\n    ¦a,\n)", "di(", "f(\n¦)"),
        ("x = [1, ¦2]", "ci]3<escape>", "x = [¦3]"),
        ("say(¦'a b', 'c')", "ci'x<escape>", "say('¦x', 'c')"),
        ('¦x = "a \\" b" + c', 'da"', "x = ¦+ c"),
        ("one t¦wo three", "diw", "one ¦ three"),
        ("one t¦wo three", "daw", "one ¦three"),
        ("one t¦wo", "daw", "on¦e"),
        ("f(a, ¦(b))", "daw", "f(a,¦b))"),
        ('x = ¦"a"', 'da"', "x ¦="),
        ("¦\n\nab", "dw", "¦\nab"),
        ("    ¦ab c", "r<enter>", "    \n   ¦ b c"),
        ("ab\n¦cd\n", "gu{", "¦ab\ncd\n"),
        ("a.b ¦c.d e", "diW", "a.b ¦ e"),
        ("a\n\n¦b\nc\n\nd", "dip", "a\n\n¦\nd"),
        ("a\n\n¦b\nc\n\nd", "dap", "a\n\n¦d"),
        ("¦a\n  b", ">j", "    ¦a\n      b"),
        ("      ¦a", "<<", "  ¦a"),
        ("¦ab Cd", "g~w", "¦AB Cd"),
        ("a¦b Cd", "gUiw", "¦AB Cd"),
        ("AB ¦Cd", "guu", "¦ab cd"),
        ("¦ab", "3~", "A¦B"),
        ("¦abc", "2rx", "x¦xc"),
        ("¦abc", "4rx", "¦abc"),
        ("a¦bc", "r<enter>", "a\n¦c"),
        ("¦a\n  b\nc", "J", "a¦ b\nc"),
        ("¦a\nb\nc\nd", "3J", "a b¦ c\nd"),
        ("¦f(\n  )", "J", "f(¦)"),
        ("¦one two", "yiw$p", "one twoon¦e"),
        ("¦one two", "ywP", "one¦ one two"),
        ("¦a\nb", "yyp", "a\n¦a\nb"),
        ("a\n¦b", "yy2P", "a\n¦b\nb\nb"),
        ("¦a\nb", "ddp", "b\n¦a"),
        ("¦ab", "xp", "b¦a"),
    ],
)
def test_operators(before: str, keys: str, then: str) -> None:
    assert after(before, keys) == then


@pytest.mark.parametrize(
    ("before", "keys", "then"),
    [
        ("a¦b", "ix<escape>", "a¦xb"),
        ("¦ab", "ax<escape>", "a¦xb"),
        ("¦ab", "Ax<escape>", "ab¦x"),
        ("  a¦b", "Ix<escape>", "  ¦xab"),
        ("¦ab", "3ix<escape>", "xx¦xab"),
        ("  if ¦x:", "oy<escape>", "  if x:\n      ¦y"),
        ("  ¦x", "Oy<escape>", "  ¦y\n  x"),
        ("  ¦x", "2oy<escape>", "  x\n  y\n  ¦y"),
        ("¦one two three", "dw.", "¦three"),
        ("¦a b c", "cwx<escape>w.", "x ¦x c"),
        ("¦a\nb", "Ax<escape>j.", "ax\nb¦x"),
        ("¦a\nb\nc\nd", "dd2.", "¦d"),
        ("¦abc", "a12<backspace><escape>.", "a1¦1bc"),
        ("  a¦\n    b", "ox<escape>j.", "  a\n  x\n    b\n    ¦x"),
        ("a¦b", "xi<escape>.", "¦a"),
    ],
)
def test_insert_and_repeat(before: str, keys: str, then: str) -> None:
    assert after(before, keys) == then


@pytest.mark.parametrize(
    ("before", "keys", "then"),
    [
        ("¦one two", "ved", "¦ two"),
        ("one ¦two", "vbd", "¦wo"),
        ("¦a\nb\nc", "Vjd", "¦c"),
        ("¦a\nb\nc", "vjVd", "¦c"),
        ("¦a\nb\nc\nd", "Vj>jj.", "    a\n    b\n    ¦c\n    d"),
        ("¦abcd", "vlx.", "¦"),
        ("a¦bcd", "vlohd", "¦d"),
        ("f(a, ¦b)", "vi(cx<escape>", "f(¦x)"),
        ("¦one two", "yiwwviwp", "one ¦one"),
        ("¦a\nb", "yyjVp", "a\n¦a"),
        ("¦abc", "v$rx", "¦xxx"),
        ("¦ab", "vlU", "¦AB"),
        ("¦a\nb\nc", "VGJ", "a b¦ c"),
        ("¦a\nb", "v<escape>x", "¦\nb"),
        ("¦abc", "v3lsx<escape>", "¦x"),
        ("ab¦c", "viwy", "¦abc"),
        ("¦a\nb", "vS<escape>", "¦\nb"),
    ],
)
def test_visual_mode(before: str, keys: str, then: str) -> None:
    assert after(before, keys) == then


@pytest.mark.parametrize("keys", ["dq", "Q", "gz", '"a', "ma", "qa", "zt", "ZZ", ":foo<enter>", "<ctrl+r>", "cib"])
def test_unknown_command_does_nothing(keys: str) -> None:
    assert after("a¦b c", keys) == "a¦b c"


@pytest.mark.parametrize(
    ("keys", "asks"),
    [
        ("3u", ("undo", 3)),
        ("<ctrl+r>", ("redo", 1)),
        (":w<enter>", ("save", 1)),
        (":q!<enter>", ("leave", 1)),
        (":x<enter>", ("save and leave", 1)),
        ("ZZ", ("save and leave", 1)),
        ("yl", ("copy", 1)),
        ("zz", ("center", 1)),
        ("qa", ("qa", 1)),
        (":%s/a/b/<enter>", (":%s/a/b/", 1)),
        ("fz", ("", 1)),
    ],
)
def test_editor_is_asked(keys: str, asks: tuple[str, int]) -> None:
    vim = Vim()
    pressed(vim, "a", keys)
    assert vim.asks == asks


def test_escape_ends_one_thing() -> None:
    vim = Vim()
    for keys in ("2d", "i", "v", "/a"):
        pressed(vim, "a b", keys)
        assert vim.leave("a b", 0)
        assert not vim.leave("a b", 0)
        assert (vim.mode, vim.keys) == ("NORMAL", "")


def test_selection_is_without_character_at_cursor() -> None:
    vim = Vim()
    pressed(vim, "abc\nd", "vl")
    assert vim.selection == (0, 1)
    pressed(vim, "abc\nd", "V")
    assert vim.selection == (0, 3)
    vim.point(3, 1)
    assert (vim.mode, vim.anchor, vim.cursor) == ("VISUAL", 2, 1)


def test_count_is_bounded() -> None:
    vim = Vim()
    text = pressed(vim, "a" * 1000, "yy99999999999p")
    assert len(text) < 2_000_000


KEYS = st.sampled_from(
    [*"hjklwWbBeE0^$GgxXdcy<>pPoOaAiIsSDCJ~rfFtT;,%{}nN*#/?vVu.23\"'([)]", "escape", "enter", "backspace", "ctrl+d"]
)


@given(st.text("ab (,)\n\"'{:}", max_size=40), st.lists(KEYS, max_size=30))
def test_any_keys_leave_a_valid_cursor(text: str, keys: list[str]) -> None:
    vim = Vim()
    for key in keys:
        text = pressed(vim, text, f"<{key}>" if len(key) > 1 else key)
        rest = text[: vim.cursor].rpartition("\n")[2], text[vim.cursor :].partition("\n")[0]
        assert 0 <= vim.cursor <= len(text)
        assert vim.mode == "INSERT" or rest[1] or not rest[0]
        assert all(0 <= place <= len(text) for place in vim.selection)
