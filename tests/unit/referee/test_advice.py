"""Advice on kernels that come from elsewhere."""

import pytest

from sandbox.referee.wording import explain
from sandbox.worlds.failures import WorldFailed


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("LOAD_FAILED", "the function to call is missing; the file defines ModelNew", "ModelNew"),
        ("LOAD_FAILED", "ModuleNotFoundError: No module named 'my_ops'", "my_ops is not installed"),
        ("LOAD_FAILED", "ModuleNotFoundError: No module named 'flash_attn'", "flash_attn is not installed"),
        ("RAISED", "ModuleNotFoundError: No module named 'einops'", "einops is not installed"),
        ("RAISED", "NameError: name 'symm' is not defined", "from sandbox.kit import symm"),
        ("LOAD_FAILED", "FileNotFoundError: [Errno 2] No such file: 'kernel.cu'", "into a string"),
        ("BAD_STRUCTURE", "solution returned a AsyncCollectiveTensor; a result is", "wait_tensor"),
        ("SYNTAX", "line 1 is a Markdown fence\nSyntaxError: invalid syntax", "```"),
        ("SYNTAX", "ValueError: source code string cannot contain null bytes", "Remove the NUL bytes"),
        ("SYNTAX", "SyntaxError: source code cannot contain null bytes", "Remove the NUL bytes"),
        ("SYNTAX", "SyntaxError: unknown encoding: klingon", "not valid Python"),
        ("SYNTAX", '  File "part.py", line 3\nSyntaxError: invalid syntax', "at the line shown"),
        ("DEVICE", "CUDA error: unspecified launch failure", "must signal as often"),
        ("DEVICE", "an illegal memory access was encountered", "compute-sanitizer"),
        ("RAISED", "signal.itimer_error: [Errno 1] Operation not permitted", "refuses timers"),
        ("RAISED", "RecursionError: maximum recursion depth exceeded", "calls itself"),
    ],
)
def test_what_kernels_from_elsewhere_have_is_explained(kind: str, text: str, words: str) -> None:
    _, failure = explain(WorldFailed(kind, 0, text=text), "load")
    assert words in failure.advice


def test_a_long_message_keeps_its_start_and_its_end() -> None:
    text = f"CalledProcessError: Command '{'x' * 900}' returned non-zero exit status 1."
    _, failure = explain(WorldFailed("RAISED", 0, text=text), "check")
    said = failure.message.removeprefix("an exception ended solution(): ")
    assert len(said) == 300
    assert said.startswith("CalledProcessError: Command 'xxx")
    assert said.endswith("xxx' returned non-zero exit status 1.")
