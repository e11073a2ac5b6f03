"""Advice on kernels that come from elsewhere, and on usual mistakes."""

import pytest

from sandbox.protocol.events import Failure
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import ADVICE, Verdict
from sandbox.referee.advice import advice_on
from sandbox.referee.wording import explain
from sandbox.worlds.failures import WorldFailed

PASSES = "import torch.distributed as dist\n\ndef solution(tensor):\n    total = tensor.clone()\n"


def said_on(kind: str, text: str, kernel: Kernel | str = PASSES, line: int = 0, on_gpus: bool = False) -> str:
    """The advice when a rank reports this."""
    failed = WorldFailed(kind, 0, line, text)
    verdict, failure = explain(failed, "load")
    kernel = Kernel(kernel) if isinstance(kernel, str) else kernel
    return advice_on(verdict, failure, text, kernel, on_gpus) or failure.advice


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("LOAD_FAILED", "the function to call is missing; the file defines Model", "forward of Model the"),
        ("LOAD_FAILED", "ModuleNotFoundError: No module named 'flash_attn'", "-m pip install flash_attn torch=="),
        ("RAISED", "ModuleNotFoundError: No module named 'my_ops.add'", "code of your own, put it beside kernel.py"),
        (
            "LOAD_FAILED",
            "No module named 'kernel.ops'; 'kernel' is not a package",
            "kernel.ops is not in the kernel's folder",
        ),
        ("LOAD_FAILED", "ImportError: attempted relative import with no known parent package", "kernel of one file"),
        ("LOAD_FAILED", "Command '['python', '-m', 'pip', 'install', 'x']' failed", "cannot install packages"),
        ("RAISED", "open('/log/x.txt', 'w')\nFileNotFoundError: no such file: '/log/x.txt'", "private /tmp only"),
        ("RAISED", "TypeError: Got unsupported ScalarType BFloat16", "NumPy has no bfloat16"),
        ("RAISED", "NameError: name 'symm' is not defined", "from sandbox.kit import symm"),
        ("LOAD_FAILED", "NameError: name 'get_ipython' is not defined", "notebook"),
        ("LOAD_FAILED", "trying to initialize the default process group twice!", "remove init_process_group"),
        ("RAISED", "ValueError: Default process group has not been initialized", "remove init_process_group"),
        ("LOAD_FAILED", "KeyError: 'LOCAL_RANK'", "dist.get_rank()"),
        ("LOAD_FAILED", "torch.multiprocessing.spawn.ProcessExitedException: process 1", "remove mp.spawn"),
        ("RAISED", "concurrent.futures.process.BrokenProcessPool: A process in the process pool was", "by fork"),
        ("LOAD_FAILED", "SystemExit: 2\n\nTraceback: argparse.py", "gets no command line"),
        ("LOAD_FAILED", "IndexError: list index out of range\n    N = int(sys.argv[1])", "gets no command line"),
        ("RAISED", "bdb.BdbQuit", "remove input() and breakpoint()"),
        ("RAISED", "NameError: name 'dist' is not defined", "Import dist"),
        ("LOAD_FAILED", "ModuleNotFoundError: No module named 'house'", "house is not in the kernel's folder"),
        ("LOAD_FAILED", "FileNotFoundError: [Errno 2] No such file: 'kernel.cu'", "into a string"),
        ("LOAD_FAILED", "FileNotFoundError: [Errno 2] No such file: 'run.sh'\nsubprocess.py", "parent / 'run.sh'"),
        ("LOAD_FAILED", "FileNotFoundError: /x/tune.csv not found.", "parent / 'tune.csv'"),
        ("LOAD_FAILED", "FileNotFoundError: [Errno 2] No such file: 'ninja'\nsubprocess.py", "program ninja is not"),
        ("LOAD_FAILED", "OSError: libmine.so: cannot open shared object file: No such file", "parent / 'libmine.so'"),
        ("RAISED", "OSError: [Errno 30] Read-only file system: '/work/log'", "private /tmp"),
        ("LOAD_FAILED", "<urlopen error [Errno -3] Temporary failure in name resolution>", "no network"),
        ("RAISED", "RuntimeError: ProcessGroupGloo does not support reduce_scatter", "gloo, which lacks"),
        ("BAD_STRUCTURE", "solution returned a AsyncCollectiveTensor; a result is", "wait_tensor"),
        ("BAD_STRUCTURE", "solution returned a DTensor; a result is", "to_local()"),
        ("BAD_STRUCTURE", "solution returned a coroutine; a result is", "without async"),
        ("BAD_STRUCTURE", "output out shares memory with the argument tensor; return", "clone()"),
        ("SYNTAX", "line 1 is a Markdown fence\nSyntaxError: invalid syntax", "```"),
        ("SYNTAX", "ValueError: source code string cannot contain null bytes", "Remove the NUL bytes"),
        ("SYNTAX", "SyntaxError: invalid character '“' (U+201C)", "Retype this character"),
        ("SYNTAX", "SyntaxError: unknown encoding: klingon", "not valid Python"),
        ("SYNTAX", '  File "part.py", line 3\nSyntaxError: invalid syntax', "at the line shown"),
        ("DEVICE", "CUDA error: unspecified launch failure", "must signal as often"),
        ("DEVICE", "an illegal memory access was encountered", "compute-sanitizer"),
        ("RAISED", "signal.itimer_error: [Errno 1] Operation not permitted", "refuses timers"),
        ("RAISED", "RecursionError: maximum recursion depth exceeded", "calls itself"),
        ("RAISED", "RecursionError: maximum recursion depth exceeded during compilation", "too many parts"),
        ("RAISED", f"{'x' * 1000}RecursionError", "traceback"),
    ],
)
def test_a_report_has_its_advice(kind: str, text: str, words: str) -> None:
    assert words in said_on(kind, text)


@pytest.mark.parametrize(
    "text",
    [
        "AssertionError: Torch not compiled with CUDA enabled",
        "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'",
        "RuntimeError: Tried to instantiate dummy base class Event",
        "RuntimeError: 0 active drivers ([]). There should only be one.",
        "OSError: CUDA_HOME environment variable is not set.",
        "RuntimeError: Distributed package doesn't have NCCL built in",
        "RuntimeError: SymmetricMemory does not support device type cpu",
        "RuntimeError: SymmetricMemory MemPool did not find backend for device type cuda",
        "    assert tensor.is_cuda, 'on a GPU'\nAssertionError: on a GPU",
        "ModuleNotFoundError: No module named 'triton'",
        "RuntimeError: NVTX functions not installed. Are you sure you have a CUDA build?",
        "NotImplementedError: Could not run 'symm_mem::all_reduce' with arguments from the 'CPU' backend.",
    ],
)
def test_code_for_gpus_is_explained_on_cpu_ranks(text: str) -> None:
    assert "on CPU ranks" in said_on("LOAD_FAILED", text)
    assert "on CPU ranks" not in said_on("LOAD_FAILED", text, on_gpus=True)


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("%%writefile kernel.py\n" + PASSES, 1, "command of a notebook"),
        (PASSES + "!pip install einops\n", 5, "command of a notebook"),
        ("__global__ void k(float* x) { x[0] = 1; }\n", 1, "C++ or CUDA"),
        ("#include <cstdio>\n\nint main() { return 0; }\n", 3, "C++ or CUDA"),
        ("// adds\ntemplate <typename T> T add(T a);\n", 1, "C++ or CUDA"),
        ("# define the solution\n" + PASSES + "    x = = 1\n", 6, "at the line shown"),
        ("<!DOCTYPE html>\n<html></html>\n", 1, "web page"),
        ("--- a/kernel.py\n+++ b/kernel.py\n@@ -1 +1 @@\n-x\n", 2, "diff"),
        ("+import torch\n+\n+def solution(x):\n", 2, "diff"),
        (PASSES + "<<<<<<< HEAD\nx = 1\n", 5, "merge conflict"),
        (f"Here is the kernel:\n\n{PASSES}", 1, "Remove the words"),
        (">>> import torch\n", 1, "prompts"),
        ("  1| import torch\n  2| x = 1\n", 1, "numbers at the start"),
        (f"1{' ' * 1_000_000}x", 1, "at the line shown"),
    ],
)
def test_a_text_that_is_not_python(source: str, line: int, words: str) -> None:
    assert words in said_on("SYNTAX", f"line {line}\nSyntaxError: invalid syntax", source, line)


def test_notebook_is_recognized_whatever_python_makes_of_it() -> None:
    for text in ("NameError: name 'null' is not defined", "the function to call is missing"):
        assert "Jupyter notebook" in said_on("LOAD_FAILED", text, '{"cells": [], "metadata": {"n": null}}')


def test_a_folder_gets_advice_on_its_own_files() -> None:
    folder = Kernel("from reduce import total\n", {"reduce.py": b"from .ops import total\n", "tune.json": b"{}"})
    mixed = said_on("LOAD_FAILED", "ImportError: attempted relative import with no known parent package", folder)
    assert "`from .module import ...`" in mixed
    assert "working folder" in said_on("LOAD_FAILED", 'FileNotFoundError: No such file: "tune.json"', folder)
    assert "neither in the kernel's folder" in said_on("LOAD_FAILED", "No module named 'einops'", folder)


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ("dist.all_reduce(total, async_op=True)", "Line 5 starts a collective and does not wait"),
        ("work = dist.all_reduce(total, async_op=True)", "Line 5 starts a collective and does not wait"),
        ("dist.all_reduce(total, dist.ReduceOp.SUM, None, True)", "Line 5 starts a collective and does not wait"),
        ("dist.isend(total, 1)", "Line 5 starts a collective and does not wait"),
        ("work = dist.all_reduce(total, async_op=True); work.wait()", ""),
        ("dist.all_reduce(total, async_op=False)", ""),
        (f"dist.isend(total, 1)  # {'x' * (1 << 18)}", ""),
        ("symm.barrier()", "A missing barrier"),
    ],
)
def test_wrong_outputs_and_what_nobody_waited_for(calls: str, words: str) -> None:
    failure = Failure(phase="check", message="output out: 3 of 4 elements wrong", advice="")
    given = failure, failure.message, Kernel(f"{PASSES}    {calls}\n"), False
    found, late = (advice_on(verdict, *given) for verdict in (Verdict.WRONG_RESULT, Verdict.LATE_OUTPUT))
    assert words in found
    assert bool(words) == bool(found)
    assert late == ("" if "barrier" in words else found)


def test_a_kernel_that_never_ends_loading() -> None:
    for phase in ("load", "check"):
        failure = Failure(phase=phase, message="ranks 0, 1 did not finish in time", advice=ADVICE[Verdict.TIMEOUT])
        advice = advice_on(Verdict.TIMEOUT, failure, "", Kernel(PASSES), False)
        assert ("must only define functions" in advice) == (phase == "load")


def test_long_message_keeps_its_start_and_its_end() -> None:
    text = f"CalledProcessError: Command '{'x' * 900}' returned non-zero exit status 1."
    _, failure = explain(WorldFailed("RAISED", 0, text=text), "check")
    said = failure.message.partition("an exception ended solution(): ")[2]
    assert len(said) == 300
    assert said.startswith("CalledProcessError: Command 'xxx")
    assert "segmentation" not in failure.advice
    assert said.endswith("xxx' returned non-zero exit status 1.")
