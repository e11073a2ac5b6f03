"""Answers with several files: fences that name them."""

import pytest

from arena.models.answer import ModelAnswer, has_whole_kernel, join_continuation, kernel_of
from arena.models.budget import Spent
from arena.models.conversation import Finish
from arena.players.feedback import fenced_kernel
from sandbox.protocol.kernel_files import Kernel

MAIN = "from .ops.sums import total\n\n\ndef solution(x):\n    return total(x)\n"
SUMS = "def total(x):\n    return x\n"
CUDA = "// sums\n"
KERNEL = Kernel(MAIN, {"ops/sums.py": SUMS.encode(), "ops/sums.cu": CUDA.encode()})


def answer(main: str = "python kernel.py", sums: str = "python ops/sums.py", cuda: str = "cuda ops/sums.cu") -> str:
    return f"Here:\n\n```{main}\n{MAIN}```\n\n```{sums}\n{SUMS}```\nand\n```{cuda}\n{CUDA}```\nDone.\n"


@pytest.mark.parametrize(
    "fences",
    [
        (),
        ("kernel.py", "ops/sums.py", "ops/sums.cu"),
        ("python:kernel.py", "py title=ops/sums.py", "cpp:ops/sums.cu"),
        ('python title="kernel.py"', "{.python file='ops/sums.py'}", "cu ops/sums.cu"),
    ],
)
def test_fences_name_the_files_of_a_kernel(fences: tuple[str, ...]) -> None:
    assert kernel_of(answer(*fences)) == KERNEL


def test_what_is_shown_to_a_model_is_read_as_the_same_kernel() -> None:
    assert kernel_of(fenced_kernel(KERNEL)) == KERNEL
    assert kernel_of(fenced_kernel(Kernel(MAIN))) == Kernel(MAIN)


def test_the_last_fence_of_a_name_counts() -> None:
    later = answer() + "Better:\n```cuda ops/sums.cu\n// better\n```\n"
    assert kernel_of(later).files["ops/sums.cu"] == b"// better\n"


@pytest.mark.parametrize("name", ["../sums.py", "/tmp/sums.py", ".hidden.py"])
def test_a_name_that_leads_out_is_no_file(name: str) -> None:
    assert "sums.py" not in str(kernel_of(answer(sums=f"python {name}")).files.keys())


def test_without_kernel_py_an_answer_is_one_file() -> None:
    found = kernel_of(answer(main="python"))
    assert (found.source.endswith(MAIN), found.files) == (True, {})


def test_an_answer_that_was_cut_off_has_all_files_or_none() -> None:
    text = answer()
    whole = text.index("// sums") + len("// sums\n```")
    for place in range(text.index("```cuda") + len("```cuda ops/sums.cu\n"), whole):
        cut = ModelAnswer(text[:place], Finish("length"), Spent())
        assert (cut.source, cut.files, cut.outcome) == ("", {}, "truncated")
        assert not has_whole_kernel(text[:place])
        assert kernel_of(join_continuation(text[:place], text[place:])) == KERNEL
    assert ModelAnswer(text[:whole], Finish("length"), Spent()).kernel == KERNEL
