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
        # motions
        ("one two.x  ¦three", "B", "one ¦two.x  three"),
        ("¦one", "w", "on¦e"),
        ("  ab¦c", "0", "¦  abc"),
        ("  ab¦c", "^", "  ¦abc"),
        ("¦abc", "3|", "ab¦c"),
        ("¦abcdef\nab\nabcdef", "4ljj", "abcdef\nab\nabcd¦ef"),
        ("a\n¦b\nc", "kk", "¦a\nb\nc"),
        ("¦a\n  b\nc", "2G", "a\n  ¦b\nc"),
        ("¦a\n  b\n", "G", "a\n  ¦b\n"),
        ("a\nb\n¦c", "gg", "¦a\nb\nc"),
        ("a\n\nb\n¦c", "{", "a\n¦\nb\nc"),
        ("f(a, (b¦))", "%", "f(a, ¦(b))"),
        ("¦a.b.c", "f.;", "a.b¦.c"),
        ("¦a.b.c.d", "t.;", "a.¦b.c.d"),
        ("a.b.¦c", "F.;,", "a.b¦.c"),
        ("¦One two one", "/on<backspace>ne<enter>n", "¦One two one"),
        ("¦a x b x c x", "/x<enter>nN", "a ¦x b x c x"),
        ("a x b x ¦c", "?x<enter>n", "a ¦x b x c"),
        ("¦one ones one", "*", "one ones ¦one"),
        ("¦a\n  b", "<enter>", "a\n  ¦b"),
        ("a\n¦b", "-", "¦a\nb"),
        ("a.¦a", "Fa", "¦a.a"),
        ("¦a\nb\nc", ":2<enter>", "a\n¦b\nc"),
        ("¦ab", "n", "¦ab"),
        ("a.b¦c", "Ta", "a¦.bc"),
        ("¦a\n(b)", "%", "¦a\n(b)"),
        ("¦a.a", "fa", "a.¦a"),
        ("¦a x b x c", "/x<enter>", "a ¦x b x c"),
        ("ab\na¦b", "Fa", "ab\n¦ab"),
        ("one two th¦ree", "2b", "one ¦two three"),
        ("¦a\nb\nc", "2j", "a\nb\n¦c"),
        ("a b ¦a b a", "#", "¦a b a b a"),
        ("¦one two.x  three", "2W", "one two.x  ¦three"),
        ("on¦e two\nx", "2e", "one two\n¦x"),
        ("one tw¦o", "ge", "on¦e two"),
        ("¦a\nb\n\nc", "}", "a\nb\n¦\nc"),
        # operators
        ("one ¦two\nthree", "dw", "one¦ \nthree"),
        ("one t¦wo", "db", "one ¦wo"),
        ("one ¦two three", "D", "one¦ "),
        ("one ¦two three", "Cx<escape>", "one ¦x"),
        ("ab¦cd", "2X", "¦cd"),
        ("a¦bc", "sxy<escape>", "ax¦yc"),
        ("a\n¦b", "dj", "a\n¦b"),
        ("a\n¦b\nc", "dG", "¦a"),
        ("  ¦ab\nc", "ccx<escape>", "  ¦x\nc"),
        ("¦a, b) c", "dt)", "¦) c"),
        ("¦a, b) c", "df)", "¦ c"),
        ("¦f(a)(b)", "d%", "¦(b)"),
        ("¦a\nb\n\nc", "d}", "¦\nc"),
        ("f(a, ¦b)x", "da(", "f¦x"),
        ("f(¦)", "ci(x<escape>", "f(¦x)"),
        ("¦y = f(a)", "ci(x<escape>", "y = f(¦x)"),
        ("f(\n    ¦a,\n)", "di(", "f(\n¦)"),
        ("x = [1, ¦2]", "ci]3<escape>", "x = [¦3]"),
        ("say(¦'a b', 'c')", "ci'x<escape>", "say('¦x', 'c')"),
        ('¦x = "a \\" b" + c', 'da"', "x = ¦+ c"),
        ("one t¦wo three", "daw", "one ¦three"),
        ("one t¦wo", "daw", "on¦e"),
        ("f(a, ¦(b))", "daw", "f(a,¦b))"),
        ('x = ¦"a"', 'da"', "x ¦="),
        ("¦\n\nab", "dw", "¦\nab"),
        ("ab\n¦cd\n", "gu{", "¦ab\ncd\n"),
        ("a.b ¦c.d e", "diW", "a.b ¦ e"),
        ("a\n\n¦b\nc\n\nd", "dap", "a\n\n¦d"),
        ("      ¦a", "<<", "  ¦a"),
        ("a¦b Cd", "gUiw", "¦AB Cd"),
        ("AB ¦Cd", "guu", "¦ab cd"),
        ("¦abc", "2rx", "x¦xc"),
        ("¦abc", "4rx", "¦abc"),
        ("¦a\nb\nc\nd", "3J", "a b¦ c\nd"),
        ("¦f(\n  )", "J", "f(¦)"),
        ("¦one two", "yiw$p", "one twoon¦e"),
        ("¦one two", "ywP", "one¦ one two"),
        ("a\n¦b", "yy2P", "a\n¦b\nb\nb"),
        ("¦a\nb", "ddp", "b\n¦a"),
        ("a\n\n¦b", "dap", "¦a"),
        ("x ¦a\n\nb", "d}", "x¦ \n\nb"),
        ("¦a b c d e f g", "2d3w", "¦g"),
        ("a ¦ \nb", "dw", "a¦ \nb"),
        ("g(f¦(a), b)", "di(", "g(f(¦), b)"),
        ("a\nb\nc¦d", "gUk", "a\n¦B\nCD"),
        ("a¦b\nc", "3~", "a¦B\nc"),
        ("(¦a)", "di(", "(¦)"),
        ("a\n" * 25 + "¦" + "a\n" * 5, "<ctrl+u>", "a\n" * 15 + "¦" + "a\n" * 15),
        ("a\n¦\nb", "diw", "a\n¦\nb"),
        ("one tw¦o", "dge", "o¦n"),
        ("ab\nc¦d e", "diw", "ab\n¦ e"),
        ("¦a.b c", "cWx<escape>", "¦x c"),
        ("¦" + "a\n" * 30, "<ctrl+d>", "a\n" * 10 + "¦" + "a\n" * 20),
        ("x\n  a¦bc d\ny", "r<enter>", "x\n  a\n ¦ c d\ny"),
        ("¦x\n'c'", "di'", "¦x\n'c'"),
        ("a¦b\n\nc", "yljp", "ab\n¦b\nc"),
        ("¦a)", "di(", "¦a)"),
        ("¦a\nb\nc\nd", "2>>", "    ¦a\n    b\nc\nd"),
        ("¦\nb", "J", "¦b"),
        ("¦1 2 3 4 5", "d3l.", "¦4 5"),
        ("'a'\nx ¦'b'\n'c'", "di'", "'a'\nx '¦'\n'c'"),
        ("ab¦.cd", "cwx<escape>", "ab¦xcd"),
        ("¦abc", "ylp3.", "aaaa¦abc"),
        ("¦ a", "cwx<escape>", "¦xa"),
        ("o¦ne two", "de", "o¦ two"),
        ("¦one two one", "d/one<enter>", "¦one"),
        ("¦ab Cd", "g~w", "¦AB Cd"),
        # inserts, and repeats
        ("¦ab", "Ax<escape>", "ab¦x"),
        ("  a¦b", "Ix<escape>", "  ¦xab"),
        ("¦ab", "3ix<escape>", "xx¦xab"),
        ("  if ¦x:", "oy<escape>", "  if x:\n      ¦y"),
        ("  ¦x", "2oy<escape>", "  x\n  y\n  ¦y"),
        ("¦a b c", "cwx<escape>w.", "x ¦x c"),
        ("¦abc", "a12<backspace><escape>.", "a1¦1bc"),
        ("  a¦\n    b", "ox<escape>j.", "  a\n  x\n    b\n    ¦x"),
        ("a¦b", "xi<escape>.", "¦a"),
        ("aaa¦b", "i<backspace>x<escape>.", "a¦xxb"),
        ("¦ab", ".", "¦ab"),
        ("a\n  ¦x", "Oy<escape>", "a\n  ¦y\n  x"),
        ("¦", "ax<escape>", "¦x"),
        # the visual mode
        ("¦a\nb\nc\nd", "Vj>jj.", "    a\n    b\n    ¦c\n    d"),
        ("¦abcd", "vlx.", "¦"),
        ("a¦bcd", "vlohd", "¦d"),
        ("f(a, ¦b)", "vi(cx<escape>", "f(¦x)"),
        ("¦one two", "yiwwviwp", "one ¦one"),
        ("¦a\nb", "yyjVp", "a\n¦a"),
        ("¦abc", "v$rx", "¦xxx"),
        ("¦a\nb\nc", "VGJ", "a b¦ c"),
        ("¦abc", "v3lsx<escape>", "¦x"),
        ("¦a\nb", "vS<escape>", "¦\nb"),
        ("¦ab\ncd\nef\ngh", "vjd.", "¦f\ngh"),
        ("¦a", "V2>", "        ¦a"),
        ("a\n\n¦b\nc\n\nd", "vipd", "a\n\n¦\nd"),
        ("¦ab\ncd", "vjy$p", "ab¦ab\nc\ncd"),
        ("f(g(¦b))", "v2i(d", "f(¦)"),
        ("¦a\nb\nc", "vjVd", "¦c"),
        ("¦ab", "vlU", "¦AB"),
        ("¦a.b a.b\n a.b\nc", ":s/a.b/x/<enter>", "¦x a.b\n a.b\nc"),
        ("¦a.b a.b\n a.b a.b\nc", ":%s/a.b/\\1\\//g<enter>", "1/ 1/\n ¦1/ 1/\nc"),
        ("a¦b", ":%s/not there/x<enter>", "a¦b"),
    ],
)
def test_keys_change_a_text_as_in_vim(before: str, keys: str, then: str) -> None:
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
        (":g/a/d<enter>", (":g/a/d", 1)),
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
    for places, taken in (((3, 1), ("VISUAL", 2, 1)), ((1, 3), ("VISUAL", 1, 2)), ((2, 2), ("NORMAL", 2, 2))):
        vim.point(*places)
        assert (vim.mode, vim.anchor, vim.cursor) == taken
    vim = Vim(cursor=4)
    pressed(vim, "abc\nd", "vkV")
    assert vim.selection == (5, 0)
    pressed(vim, "abc\nd", "v")
    assert vim.selection == (5, 0)


def test_search_term_is_known_while_it_is_typed() -> None:
    vim = Vim()
    terms = [(pressed(vim, "a b", key), vim.term)[1] for key in ("/", "a", "b", "<backspace>", "<enter>", "w")]
    assert terms == ["", "a", "ab", "a", "a", ""]
    assert pressed(vim, "a b", ":x<backspace>w<enter>") == "a b"
    assert vim.asks == ("save", 1)


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
