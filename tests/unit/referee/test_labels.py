"""Labels beside a verdict: where a kernel's speed comes from, as far as its source shows."""

from pathlib import Path

import pytest

from sandbox.protocol.kernel_files import Kernel
from sandbox.referee.labels import BASELINE, FALLBACK, LIBRARY, backends_of, labels

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


IN_SOLUTION = "def solution(x):\n    try:\n        return fast(x)\n    except Exception:\n        {}\n"
AT_THE_TOP = "try:\n    from fast import total\nexcept ImportError:\n    {}\n\ndef solution(x):\n    return {}(x)\n"
HARMLESS = "try:\n    pass\nexcept KeyError:\n    raise\n"
DEFINED = "def total(x):\n        return torch.sum(x)"


@pytest.mark.parametrize(
    ("text", "falls_back"),
    [
        (IN_SOLUTION.format("return torch.sum(x)"), True),
        (IN_SOLUTION.format("dist.all_reduce(x)\n        return x"), True),
        (IN_SOLUTION.format("print(dist.get_rank(), torch.cuda.is_available())"), False),
        (IN_SOLUTION.format("dist.broadcast(x, 0)\n        raise"), False),
        (IN_SOLUTION.format("buffers[x.shape] = torch.empty_like(x)"), False),
        (IN_SOLUTION.format("raise RuntimeError(torch.version(1)) from None"), False),
        (AT_THE_TOP.format(DEFINED, "total"), True),
        (AT_THE_TOP.format("total = lambda x: torch.sum(x)", "total"), True),
        (AT_THE_TOP.format(DEFINED, "own"), False),
        (AT_THE_TOP.format("torch.set_num_threads(1)", "own"), False),
        (9 * HARMLESS + IN_SOLUTION.format("return torch.sum(x)"), True),
        (10 * HARMLESS + IN_SOLUTION.format("return torch.sum(x)"), False),
        (5000 * "#\n" + IN_SOLUTION.format("return torch.sum(x)"), False),
    ],
)
def test_fallback_is_handler_that_can_replace_result(text: str, falls_back: bool) -> None:
    assert (FALLBACK in labels(Kernel(text))) is falls_back


def test_only_certain_imports_need_a_backend() -> None:
    kernel = Kernel("import torch\nif torch.cuda.is_available():\n    from sandbox.kit import nccl\n")
    assert (backends_of(kernel), len(backends_of(kernel, anywhere=True))) == ([], 1)


def test_no_text_is_too_strange() -> None:
    for text in ("", "(" * 200_000, "torch." * 200_000 + "(", "\n" * 200_000, "except:\n" * 2_000, "\x00\ud800"):
        labels(Kernel(text))
