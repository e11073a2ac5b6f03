"""From a model's answer to one file: fences, several blocks, truncation, and answers without a kernel."""

from textwrap import indent

import pytest

from arena.models.answer import ModelAnswer, blocks_of, has_whole_kernel, join_continuation, kernel_of, whole_kernel
from arena.models.budget import Spent
from arena.models.conversation import Finish, ToolCall
from arena.players.feedback import fenced_kernel
from sandbox.protocol.kernel_files import Kernel

WHOLE = "import torch\n\n\ndef solution(x):\n    return x\n"


def block(text: str, language: str = "python", fence: str = "```") -> str:
    return f"{fence}{language}\n{text}{fence}\n"


def outcome(text: str, reason: str = "stop") -> str:
    return ModelAnswer(text, Finish(reason), Spent()).outcome


def test_blocks_that_kernel_needs_are_joined_in_order() -> None:
    solution = "def solution(x):\n    return x + SOURCE\n"
    parts = ["import math\n", "BASE = math.pi\n", "SOURCE = BASE + 1\n"]
    unused = block("import torch\nx = torch.pi\n")
    text = "then\n".join(map(block, parts)) + unused + block(solution)
    assert kernel_of(text).source == "\n\n".join([*parts, solution])
    lonely = "def solution(x):\n    return no(x)\n"
    assert whole_kernel(block(lonely)).source == lonely
    draft = "import torch\n\nSOURCE = 1\n\n\ndef solution(x):\n    return x + SOURCE\n"
    assert kernel_of(block(draft) + block(solution)).source == draft  # no kernel is a part of another


def test_fences_within_a_kernel_do_not_end_it() -> None:
    inner = 'DOC = """\n```\nnot the end\n```\n> quoted\n"""\n\n\ndef solution(x):\n    return x\n'
    assert kernel_of(block(inner, fence="````")).source == inner
    assert kernel_of(block(inner, fence="~~~")).source == inner
    assert kernel_of(block(inner)).source == inner


@pytest.mark.parametrize("line", ["~" * 100_000 + "`", "~~~ " * 25_000 + "`", "a" + " " * 100_000 + "b"])
def test_a_long_line_is_read_at_once(line: str) -> None:
    assert kernel_of(line + "\n" + block(WHOLE)).source == WHOLE
    assert blocks_of(f"```python\n{WHOLE}```{line}\n")[0].text.startswith(WHOLE)


def test_an_answer_of_many_fences_is_read_once() -> None:
    """The time is linear in the length. Where it is the square, the test's time is up."""
    assert kernel_of("a: ```\n" * 15_000 + block(WHOLE)).source


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
    assert join_continuation("x = abcdefghijk", "abcdefghijk!") == "x = abcdefghijkabcdefghijk!"
    assert join_continuation("x = abcdefghijkl", "abcdefghijkl!") == "x = abcdefghijkl!"
    assert join_continuation("```\nx", "```python") == "```\nx```python"
    assert join_continuation("a\nx = 1\n", "x = 1\ny") == "a\nx = 1\ny"


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


def test_what_has_no_kernel_says_why() -> None:
    call = ToolCall("run", "{}")
    answers = {
        "the model declined: " + "x" * 200: ModelAnswer("", Finish("refusal", "x" * 300), Spent()),
        "the model declined": ModelAnswer("", Finish("refusal"), Spent()),
        "the answer was cut off again and again": ModelAnswer("So", Finish("length"), Spent(), continued=2),
        "the answer was cut off": ModelAnswer("So", Finish("length"), Spent()),
        "max_tokens": ModelAnswer("So", Finish("length", "max_tokens"), Spent()),
        "the budget is spent": ModelAnswer("", Finish("budget"), Spent()),
        "$1 is spent": ModelAnswer("", Finish("budget", "$1 is spent"), Spent()),
        "the answer is empty": ModelAnswer("", Finish("stop"), Spent()),
        "the answer has no code: so it is": ModelAnswer("so\n it  is", Finish("stop"), Spent()),
        "it called tools again and again, and there is no kernel in its answer": ModelAnswer(
            "So", Finish("stop"), Spent(), calls=(call,)
        ),
        "": ModelAnswer(block(WHOLE), Finish("stop"), Spent(), calls=(call,)),
    }
    assert {each.reason: each for each in answers.values()} == answers
    unreadable = ModelAnswer(block(WHOLE), Finish("unreadable"), Spent())
    assert (unreadable.source, unreadable.reason) == ("", "a part of the answer cannot be read")


MAIN = "from .ops.sums import total\n\n\ndef solution(x):\n    return total(x)\n"
SUMS = "def total(x):\n    return x\n"
CUDA = "// sums\n"
KERNEL = Kernel(MAIN, {"ops/sums.py": SUMS.encode(), "ops/sums.cu": CUDA.encode()})

FILES = {"kernel.py": MAIN, "ops/sums.py": SUMS, "ops/sums.cu": CUDA}


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


def test_a_diff_of_python_files_keeps_them_apart() -> None:
    head = "--- /dev/null\n+++ b/{}\n@@ -0,0 +1 @@\n"
    parts = [head.format(name) + indent(text, "+", lambda _: True) for name, text in list(FILES.items())[:2]]
    assert kernel_of(block("".join(parts), "diff")) == Kernel(MAIN, {"ops/sums.py": SUMS.encode()})


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
