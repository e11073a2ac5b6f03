"""From a model's answer to one file: fences, several blocks, truncation, and answers without a kernel."""

import pytest

from arena.models.answer import ModelAnswer, blocks_of, has_whole_kernel, join_continuation, kernel_of
from arena.models.budget import Spent
from arena.models.conversation import Finish
from arena.players.feedback import fenced_kernel
from sandbox.protocol.kernel_files import Kernel

WHOLE = "import torch\n\n\ndef solution(x):\n    return x\n"


def block(text: str, language: str = "python", fence: str = "```") -> str:
    return f"{fence}{language}\n{text}{fence}\n"


def outcome(text: str, reason: str = "stop") -> str:
    return ModelAnswer(text, Finish(reason), Spent()).outcome


def test_blocks_that_kernel_needs_are_joined_in_order() -> None:
    solution = "def solution(x):\n    return torch.add(x, SOURCE)\n"
    parts = block("import torch\n") + "then\n" + block("SOURCE = 1\n", "py")
    unused = block("import math\nx = math.pi\n")
    assert kernel_of(parts + unused + block(solution)).source == f"import torch\n\n\nSOURCE = 1\n\n\n{solution}"


def test_fences_within_a_kernel_do_not_end_it() -> None:
    inner = 'DOC = """\n```\nnot the end\n```\n"""\n\n\ndef solution(x):\n    return x\n'
    assert kernel_of(block(inner, fence="````")).source == inner
    assert kernel_of(block(inner, fence="~~~")).source == inner
    assert kernel_of(block(inner)).source == inner


@pytest.mark.parametrize("line", ["~" * 100_000 + "`", "~~~ " * 25_000 + "`", "a" + " " * 100_000 + "b"])
def test_a_long_line_is_read_at_once(line: str) -> None:
    assert kernel_of(line + "\n" + block(WHOLE)).source == WHOLE
    assert blocks_of(f"```python\n{WHOLE}```{line}\n")[0].text.startswith(WHOLE)


@pytest.mark.parametrize("cut", range(12, len(WHOLE)))
def test_a_continuation_fits_wherever_the_answer_was_cut(cut: int) -> None:
    whole = block(WHOLE)
    assert kernel_of(join_continuation(whole[:cut], whole[cut:])).source == WHOLE


@pytest.mark.parametrize("repeated", ["    return x\n", "def solution(x):\n    return x\n"])
def test_what_a_continuation_repeats_is_dropped(repeated: str) -> None:
    text = "```python\nimport torch\n\n\ndef solution(x):\n    return x\n"
    assert join_continuation(text, repeated + "# end\n```\n") == text + "# end\n```\n"


def test_chance_repetitions_are_kept() -> None:
    assert join_continuation("x = 1", "1") == "x = 11"


@pytest.mark.parametrize(
    ("text", "reason", "expected"),
    [
        (block(WHOLE), "stop", "kernel"),
        (block(WHOLE) + "And so", "length", "kernel"),  # only the text after the kernel is cut
        ("```python\n" + WHOLE, "length", "truncated"),
        ("```python\n" + WHOLE, "broken", "truncated"),
        ("```python\n" + WHOLE, "stop", "kernel"),  # the model forgot the fence
        ("  \n", "stop", "empty"),
        ("I cannot.", "refusal", "refusal"),
        ("", "budget", "budget"),
        ("```python\n", "budget", "budget"),
        ("no code", "stop", "prose"),
        (block("ls\n", "bash"), "stop", "prose"),
    ],
)
def test_every_answer_has_one_outcome(text: str, reason: str, expected: str) -> None:
    assert outcome(text, reason) == expected


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


def test_kernel_shown_to_model_reads_back_the_same() -> None:
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


def test_answer_cut_off_has_all_files_or_none() -> None:
    text = answer()
    whole = text.index("// sums") + len("// sums\n```")
    for place in range(text.index("```cuda") + len("```cuda ops/sums.cu\n"), whole):
        cut = ModelAnswer(text[:place], Finish("length"), Spent())
        assert (cut.kernel, cut.outcome) == (Kernel(""), "truncated")
        assert not has_whole_kernel(text[:place])
        assert kernel_of(join_continuation(text[:place], text[place:])) == KERNEL
    assert ModelAnswer(text[:whole], Finish("length"), Spent()).kernel == KERNEL
