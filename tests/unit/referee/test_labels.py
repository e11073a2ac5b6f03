"""Labels beside a verdict: where a kernel's speed comes from, as far as its source shows."""

from pathlib import Path

import pytest

from sandbox.protocol.kernel_files import Kernel
from sandbox.referee.labels import BASELINE, FALLBACK, LIBRARY, labels

KERNELS = Path(__file__).resolve().parents[2] / "attacks" / "kernels"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("honest", [LIBRARY]),
        ("honest_cpp", []),
        ("a21_calls_the_baseline", [BASELINE, LIBRARY]),
        ("a22_falls_back", [LIBRARY, FALLBACK]),
        ("h14_exception", [LIBRARY]),
    ],
)
def test_labels_of_the_suite(name: str, expected: list[str]) -> None:
    assert labels(Kernel((KERNELS / f"{name}.py").read_text())) == expected


@pytest.mark.parametrize(
    "line",
    [
        "import triton",
        "from sandbox.kit import cuda as c",
        "from torch.utils import cpp_extension, data",
        "import os, ctypes",
    ],
)
def test_code_of_its_own_is_no_library_call(line: str) -> None:
    assert LIBRARY not in labels(Kernel(f"import torch\n{line}\n"))


def test_an_except_that_only_complains_is_no_fallback() -> None:
    text = "try:\n    f()\nexcept ValueError as error:\n    raise RuntimeError(torch.version(1)) from error\nx = torch.ones(1)\n"
    assert FALLBACK not in labels(Kernel(text))


def test_no_text_is_too_strange() -> None:
    for text in ("", "(" * 200_000, "torch." * 200_000 + "(", "\n" * 200_000, "except:\n" * 2_000, "\x00\ud800"):
        labels(Kernel(text))
