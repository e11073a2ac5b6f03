"""The kernels in written answers (answers.json), and properties of all answers.

answers.json: by kind and name, the answer, its blocks (language, text, closed, name), and the other parts of `read_answer`.
<K> is the kernel, <K2>, <K3>, <K4> the same indented, <K>> quoted, <D> a draft, <B> a draft that is no Python, <S> a stub.
"""

import itertools
import json
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.models.answer import has_whole_kernel, join_continuation, kernel_of, whole_kernel
from arena.models.fences import blocks_of, read_answer

REST = 'def solution(a, b):\n    """Add."""\n    if a is b:\n        return 2 * a\n    return torch.add(a, b)\n'
KERNEL = "import torch\n\n\n" + REST
TEXTS = {
    "<K>>": textwrap.indent(KERNEL, "> ", lambda line: True),
    "<K_>": KERNEL.rstrip("\n"),
    "<K_br>": KERNEL.replace("\n", "<br/>").replace("    ", "&nbsp;" * 4),
    "<K_u2028>": KERNEL.replace("\n", "\u2028"),
    "<R>": REST,
    "<K>": KERNEL,
    "<D>": "def solution(a, b):\n    return 0\n",
    "<B>": "def solution(a, b:\n    return\n",
    "<S>": 'def solution(a, b):\n    """Add."""\n    ...\n',
    "<U>": "x = torch.ones(2)\nprint(solution(x, x))\n",
} | {f"<K{columns}>": textwrap.indent(KERNEL, " " * columns) for columns in (2, 3, 4)}
ANSWERS = Path(__file__).with_name("answers.json").read_text(encoding="utf-8")
for name, meant in TEXTS.items():
    ANSWERS = ANSWERS.replace(name, json.dumps(meant)[1:-1])
FENCED = f"Here:\n\n```python\n{KERNEL}```\n"


def made(text: str) -> str:
    for name, meant in TEXTS.items():
        text = text.replace(name, meant)
    return text


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        pytest.param(kind, written, id=f"{kind}-{name}")
        for kind, answers in json.loads(ANSWERS).items()
        for name, written in answers.items()
    ],
)
def test_the_kernel_of_a_made_answer(kind: str, written: list[object]) -> None:
    text = str(written[0])
    found = read_answer(text)
    blocks = [[each.language, each.text, each.closed, each.name] for each in found.blocks]
    assert [text, blocks, found.plain, found.thinking, found.thought, "".join(found.rest)] == written
    expected = {"kernel": KERNEL, "none": "", "broken": TEXTS["<B>"]}[kind]
    assert kernel_of(text).source.replace("\r\n", "\n") == expected


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Continuing from where I stopped:\n\n",
        "Continuing from exactly where it was cut off...\n",
        "*(continued)*\n\n",
        "Sure! Continuing where I left off:\n",
        "Here is the rest of the file:\n\n",
    ],
)
def test_what_continues_an_answer_may_say_so(said: str) -> None:
    for cut, fence in itertools.product(["def sol", "return 2 * a\n", "    return "], ["", "```python\n", "```\n"]):
        place = FENCED.index(cut) + len(cut)
        for end in ("```\n", "") if "python" in fence else ("```\n",):  # it may forget the last fence
            more = said + fence + FENCED[place:].removesuffix("```\n") + end
            assert kernel_of(join_continuation(FENCED[:place], more)).source == KERNEL


def test_an_answer_that_begins_again_says_so_first() -> None:
    again = "Continuing from where I stopped would be long; the whole file:\n\n" + FENCED
    assert kernel_of(join_continuation(FENCED[:50], again)).source == KERNEL
    # A fence that closes the cut text opens no block.
    assert kernel_of(join_continuation(FENCED[:-4], "```\nIt adds.\n")).source == KERNEL


def test_only_kernel_before_a_cut_is_whole() -> None:
    text = f"<think>\n{FENCED}So"
    assert not has_whole_kernel(text)
    assert whole_kernel(text).source == ""
    assert whole_kernel(FENCED + "Use it:\n```python\nx = tor").source == KERNEL


MARKUP = st.lists(
    st.sampled_from([*TEXTS, "```", "```python", "~~~", "<think>", "</think>", "\n", "words", "> ", "- ", "   "])
    | st.text(max_size=3)
).map(lambda parts: made("".join(parts)))


@given(MARKUP)
def test_every_markup_is_read(text: str) -> None:
    kernel_of(text)
    has_whole_kernel(text)
    assert all(block.closed for block in blocks_of(text)[:-1])


WORDS = st.text(st.characters(exclude_characters="`~<>", exclude_categories=["C", "Z"]) | st.sampled_from(" \n"))


@given(before=WORDS, after=WORDS, think=st.booleans())
def test_words_around_a_kernel_change_nothing(before: str, after: str, think: bool) -> None:
    thought = f"<think>{before}</think>\n" if think else ""
    text = f"{thought}{before}\n```python\n{KERNEL}```\n{after}"
    assert kernel_of(text).source == KERNEL
    assert has_whole_kernel(text)


@given(st.integers(min_value=0, max_value=len(FENCED)))
def test_a_cut_never_makes_another_kernel_whole(place: int) -> None:
    assert whole_kernel(FENCED[:place]).source in ("", KERNEL)
