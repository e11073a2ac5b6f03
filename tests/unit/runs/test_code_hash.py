"""The hash of a kernel's code: what it ignores, and that it is the same in all versions of Python."""

import io
import sys
import tokenize
from pathlib import Path

import pytest
from stored_runs import ran

from arena.paths import Paths
from arena.records.code_hash import code_hash, old_code_hashes
from arena.records.index import Store
from arena.records.python_tokens import STRING, python_tokens
from arena.records.voids import Void, append_void
from problems.catalogue import HOME

KERNEL = "def solution(x):\n    if x:\n        return x\n    return 0\n"


@pytest.mark.parametrize(
    "same",
    [
        "# a comment\n" + KERNEL,
        KERNEL.replace("\n", "\n\n"),
        KERNEL.replace("return x", "return x  # why"),
        KERNEL.replace("    ", "  "),
        KERNEL.rstrip("\n"),
        KERNEL.replace("(x):", "(\n    x\n):"),
        KERNEL.replace("(x):", "(  # what\n    x):"),
        KERNEL.replace("return x", "return \\\n  x"),
        KERNEL.replace("\n", "\r\n"),
        KERNEL.replace("\n", "\r"),
        "\ufeff" + KERNEL,
    ],
)
def test_comments_blank_lines_and_layout_are_no_code(same: str) -> None:
    assert code_hash(same) == code_hash(KERNEL)


@pytest.mark.parametrize(
    "other",
    [
        KERNEL.replace("return 0", "return 1"),
        KERNEL.replace("    return 0", "        return 0"),
        KERNEL.replace("return 0", "return '# 0'"),
        '"text"\n' + KERNEL,
        "def broken(:",
        "def solution(x:\n",
        "",
        "\ud800",
        "f'{" * 9000,
    ],
)
def test_other_code_has_another_name(other: str) -> None:
    assert code_hash(other) != code_hash(KERNEL)


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (KERNEL, "426e02d37e"),
        ("", "bb6b8a7a81"),
        ('print(f"{x!r:>{w}} {d["key"]}")  # since 3.12\n', "e34d94681b"),
        ('t"{x}"\n', "d45690e99d"),
        ("x = '×\U0001fae8'\n", "099dbccd58"),
        ("x = 0x_ff + 1_0.5e-3j; y = x @ z; z **= -1 if y != x else ...\n", "323aa59fa0"),
        ("def broken(:", "acc6cea497"),
    ],
)
def test_no_version_of_python_changes_a_name(source: str, named: str) -> None:
    assert code_hash(source)[:10] == named


@pytest.mark.parametrize(
    "string",
    [
        *("f'{x}'", "f'{{}}'", "f'{x!r:>{w}}'", "f'{x != y}'", "F'{d[\"}\"]}'", "rf'\\{x}'", "f'\\N{DASH}{x}'"),
        *("f'{d['key']}'", "f'{f'{x}' + '}'}'", "f'''{\nx  # it's }\n}'''", "f'{x:%H:%M}'", "f'{(lambda: 1)()}'"),
        *("t'{x}'", "rb'\\''", "Rb'''it's'''", "'a\\\nb'", "u'x'", "f'{x:{'}'}>{w}}'"),
    ],
)
def test_a_string_is_one_token(string: str) -> None:
    assert [text for kind, text in python_tokens(f"a = {string} + b\n") if kind == STRING] == [string]


@pytest.mark.parametrize("broken", ["'", "f'{x'", "f'{", "f'\\", "x = $", "a ? b", "(", "  x\n y\n", "x\\\n"])
def test_what_is_no_python_has_no_tokens(broken: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        python_tokens(broken)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="stored names are those of Python 3.11's own tokens")
def test_tokens_are_those_of_python_3_11() -> None:
    left_out, layout = (tokenize.COMMENT, tokenize.NL), range(tokenize.NEWLINE, tokenize.DEDENT + 1)
    for file in [*sorted(HOME.glob("*/*/*.py")), Path(tokenize.__file__), Path(__file__)]:
        source = file.read_text()
        theirs = [
            (each.type, "" if each.type in layout else each.string)
            for each in tokenize.generate_tokens(io.StringIO(source).readline)
            if each.type not in left_out
        ]
        assert python_tokens(source) == theirs, file


def test_a_kernel_that_was_voided_under_an_older_name_stays_voided(paths: Paths) -> None:
    (old,) = old_code_hashes(KERNEL) - {code_hash(KERNEL)}  # the hash of Python 3.12 and later
    ran(paths, "run-1", KERNEL, 9.0)
    append_void(paths.voids, Void(at=1.0, note="cheats", by="anna", code=old))
    store = Store(paths.database, paths.runs)
    assert [entry.run_id for entry in store.voided()] == ["run-1"]
    append_void(paths.voids, Void(at=2.0, note="", by="anna", code=code_hash(KERNEL), undo=True))
    store.rebuild(paths.runs)
    assert store.voided() == []
    store.close()
