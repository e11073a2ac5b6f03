"""The hash of a kernel's code ignores blank lines and comment lines, and nothing else."""

import pytest

from arena.records.code_hash import code_hash

KERNEL = "def solution(x):\n    if x:\n        return x\n    return 0\n"
CUDA = 'SOURCE = """\n#define TILE 4\n"""\n'


@pytest.mark.parametrize(
    "same",
    [
        "# a comment\n" + KERNEL,
        KERNEL.replace("\n", "\n\n"),
        KERNEL.replace("if x:", "if x:\n  # why"),
        KERNEL.rstrip("\n"),
        KERNEL.replace("\n", "  \n"),
        KERNEL.replace("\n", "\r\n"),
        KERNEL.replace("\n", "\r"),
        "\ufeff" + KERNEL,
    ],
)
def test_blank_and_comment_lines_are_no_code(same: str) -> None:
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
        "(" * 9000,
    ],
)
def test_other_code_has_another_hash(other: str) -> None:
    assert code_hash(other) != code_hash(KERNEL)


def test_lines_of_a_string_are_code() -> None:
    assert code_hash(CUDA) != code_hash(CUDA.replace("4", "8"))
    assert code_hash(f"# tile\n{CUDA}") == code_hash(CUDA)


def test_only_python_files_lose_comments() -> None:
    assert code_hash(KERNEL, {"a.py": b"x = 1\n# why\n"}) == code_hash(KERNEL, {"a.py": b"x = 1\n"})
    assert code_hash(KERNEL, {"a.cu": b"#define X 1\n"}) != code_hash(KERNEL, {"a.cu": b""})
