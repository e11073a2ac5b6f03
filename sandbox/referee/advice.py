"""Advice on usual mistakes: what a failure's text and the kernel's own text show together.

Both are untrusted, so they are searched and never executed. Advice changes no verdict.
"""

import ast
import json
import re

from sandbox.machine.backends import python_install
from sandbox.protocol.events import Failure
from sandbox.protocol.kernel_files import Kernel, python_texts
from sandbox.protocol.verdict import ADVICE, Verdict

_FOLDER = "put it beside kernel.py in a folder, and give the folder"
_OWN_GROUP = "Every rank has its process group already"
_IMPORTED = (
    'Loading a kernel must only define functions: put tests, benchmarks and main() under if __name__ == "__main__"'
)
_NO_ARGUMENTS = f"A kernel gets no command line and must not end its process. {_IMPORTED}"
_NO_GPU = (
    "This run is on CPU ranks: CUDA, Triton and NCCL do not work there. Use the device of the arguments, the given process "
    "group and sandbox.kit (symm, cpp), or run with --device cuda on a machine with GPUs."
)
_C_SOURCE = (
    f"This is C++ or CUDA. A kernel is Python: pass this text as a string to sandbox.kit (cpp, cuda), or {_FOLDER}."
)
_WRITES = "A kernel may write in its private /tmp only: see tempfile."

_OWN = {"kernel", "kernels", "utils", "src", "lib", "ops", "baseline", "house", "reference", "common", "helpers"}
"""Names of modules that are no packages to install."""
_MODULE = re.compile(r"No module named '([\w.]+)'(; '\w+' is not a package)?")
_NO_LIBRARY = r"OSError: (\S+\.so[\d.]*): cannot open shared object file"
_NO_FILE = re.compile(rf"FileNotFoundError: (?:.*?: b?['\"])?([^'\"\n]*)(?:['\"]| not found)|{_NO_LIBRARY}")

_ON_CPU_RANKS = re.compile(
    r"not compiled with CUDA|has no attribute '_cuda|requires CUDA|dummy base class|No CUDA GPUs|no NVIDIA (?:driver|GPU)"
    r"|CUDA_HOME|lib(?:cuda|cudart|nvrtc|nccl)\b|active drivers|Pointer argument .* cannot be accessed|needs a CUDA GPU"
    r"|NCCL built in|NCCL is only supported with GPUs|ProcessGroupNCCL|accelerator device|support device type cpu"
    r"|CUDA driver|NO_DEVICE|'nvcc'|pin_memory allocator|CUDA build|from the 'CPU' backend|unavailable on CPU"
    r"|backend for (?:CUDA|device type cuda)|assert .*\.is_cuda\b"
    r"|No module named '(?:triton|cupy|cuda|pycuda|cutlass|pynvml|nvshmem|tilelang|numba\.cuda|nccl)\b"
)
"""Found in a failure on CPU ranks of code that needs a GPU."""

_SAID: tuple[tuple[str, str], ...] = (
    (r"the file defines .*\b(Model(?:New)?)\b",
     r"Make the forward of \1 the function solution(...), with the baseline's parameters."),
    (r"NameError: name '(symm|cuda|cpp)' is not defined", r"Import it: from sandbox.kit import \1."),
    (r"NameError: name '(torch|dist|np|math|os|tl?|F|nn|triton)' is not defined", r"Import \1 in the file's first lines."),
    (r"name 'get_ipython' is not defined", "Remove the lines with get_ipython: they are commands of a notebook."),
    (r"beyond top-level package", "Relative imports end at the kernel's folder: put the module beside kernel.py."),
    (r"(?:KeyError: '|environment variable )(?:LOCAL_)?(?:RANK|WORLD_SIZE)\b|KeyError: 'MASTER_\w+'",
     f"{_OWN_GROUP}: use dist.get_rank() and dist.get_world_size() in place of torchrun's variables."),
    (r"default process group twice|env:// rendezvous|process group has not been initialized",
     f"{_OWN_GROUP}: remove init_process_group and destroy_process_group."),
    (r"torch[/.]multiprocessing/spawn|ProcessExitedException|An attempt has been made to start a new process",
     "The ranks run already, one process each: remove mp.spawn, and use dist.get_rank()."),
    (r"BrokenProcessPool", "Start a pool's processes by fork: those of spawn cannot import the kernel."),
    (r"^SystemExit|UnparsedFlagAccessError|sys\.argv", _NO_ARGUMENTS),
    (r"EOF when reading a line|BdbQuit", "A kernel has no terminal: remove input() and breakpoint()."),
    (r"FileNotFoundError: .*\.(?:cu|cuh|cpp|cc|h|hpp|so|ptx)\b",
     "Put CUDA or C++ into a string, which sandbox.kit compiles, or beside kernel.py in a folder, and give the folder."),
    (r"Read-only file system|PermissionError: .*: '", _WRITES),
    (r"unsupported ScalarType BFloat16", "NumPy has no bfloat16: keep tensors of torch, or convert to float() first."),
    (r"name resolution|Network is unreachable|URLError|gaierror|HTTPSConnectionPool|MaxRetryError",
     f"A kernel has no network. If it needs a file, {_FOLDER}."),
    (r"(?i)gloo\b.{0,60}(?:not support|unsupported|not implemented)|Cannot use ReduceOp\.\w+ with Gloo",
     "CPU ranks communicate over gloo, which lacks this operation. Build it from all_reduce, all_gather, send and recv."),
    (r"a AsyncCollectiveTensor",
     "Wait for the collective: return wait_tensor(result) of torch.distributed._functional_collectives."),
    (r"returned a DTensor", "Return a plain tensor: call to_local() on the DTensor."),
    (r"returned an? \w*Work\b", "Return the tensor, not the handle of the collective: call wait() on the handle first."),
    (r"returned an? (?:coroutine|generator|async_generator)", "Define solution with def, without async and yield."),
    (r"shares memory with the argument", "Copy the argument first: clone() returns a fresh tensor."),
    (r"is a Markdown fence", "Remove the lines with ``` and the text outside of them."),
    (r"unspecified launch failure|CUDA_ERROR_LAUNCH_FAILED",
     "A wait for a peer may have given up: those of the kit trap after 2 s. Every rank must signal as often as others wait."),
    (r"cannot contain null bytes", "Remove the NUL bytes. Save the source as UTF-8 text."),
    (r"invalid (?:non-printable )?character", "Retype this character: it comes from formatted text, not from a program."),
    (r"TabError", "Indent with spaces only."),
    (r"itimer", "The judge refuses timers that send signals (setitimer). Read a clock in the kernel instead."),
    (r"exceeded during compilation", "An expression has too many parts: split it, or build it in a loop."),
    (r"RecursionError", "A function calls itself without an end. The traceback shows which."),
)  # fmt: skip
"""By pattern in a failure's text."""

_SHAPES: tuple[tuple[str, str], ...] = (
    (r"(?i)\A\s*<(?:!doctype|html|head)\b", "This is a web page. Download the raw text of the file."),
    (r"\Aversion https://git-lfs", "This is a pointer of Git LFS: run git lfs pull."),
    (r"(?m)\A(?:diff --git |--- \S|\*\*\* |\+\w)|^@@ -\d", "This is a diff. Give the whole file."),
    (r"(?m)^(?:<{7}|>{7}) ", "Resolve the merge conflict: remove its markers."),
    (r"\A\s*(?:Here|Sure|Certainly|Below|The)\b[^=(\n]*\n", "Remove the words before the program's first line."),
    (r"(?m)^>>> ", "Remove the prompts >>> and ... at the start of the lines."),
    (r"\A\s*\d+ {0,4}[|:.)\s]\s*(?:import|from|def|class|#|@|\"\"\")", "Remove the numbers at the start of the lines."),
)
"""By pattern in a text that is not Python."""
_C_LINE = re.compile(
    r'#(?:include\s*[<"]|define\s+\w|pragma\s|ifn?def\s)|//|/\*|extern\s+"C"|template\s*<|__(?:global|device|host)__|using\s+\w'
    r"|namespace\b|(?:static|inline|constexpr|typedef|struct|void|int|float|double|auto|const|unsigned)\s+[\w*<]"
)
_COMMAND = re.compile(r"\s*(?:%%?|!|\?)[\w/]")
_PEERS = re.compile(r"\bsymm\b|barrier|shmem|symmetric_memory|symm_mem|px_|signal|\bpeers?\b")
_READ, _SEARCHED = 1 << 18, 1000
"""Most characters of a text that is read as Python, and of a failure's line that is searched: patterns may take their square."""
_LATE = (Verdict.WRONG_RESULT, Verdict.NONFINITE, Verdict.LATE_OUTPUT)
_UNWAITED = {"isend", "irecv", "batch_isend_irecv"}
_COLLECTIVES = ("all_", "reduce", "broadcast", "gather", "scatter", "barrier")
"""How the names of collectives begin, whose last parameter is async_op."""


def advice_on(verdict: Verdict, failure: Failure, said: str, kernel: Kernel, on_gpus: bool) -> str:
    """Advice on a failure; empty if it shows none of the usual mistakes.

    said: everything that the ranks reported. on_gpus: whether the ranks have GPUs.
    """
    if verdict in (Verdict.COMPILE_ERROR, Verdict.LOAD_ERROR) and (shape := _on_shape(failure, kernel.source)):
        return shape
    if verdict in _LATE:
        return _on_results(verdict, kernel)
    said = "\n".join(row[:_SEARCHED] for row in f"{said}\n{failure.text}".split("\n"))
    if not on_gpus and _ON_CPU_RANKS.search(said):
        return _NO_GPU
    for find in (_on_modules, _on_files):
        if found := find(said, kernel):
            return found
    for pattern, advice in _SAID:
        if match := re.search(pattern, said, re.MULTILINE):
            return match.expand(advice)
    loads = failure.phase == "load" and failure.advice == ADVICE[Verdict.TIMEOUT]
    return _IMPORTED if loads else ""


def _on_shape(failure: Failure, source: str) -> str:
    """Advice on a text that is not Python, or a notebook, whose JSON may be read as Python."""
    if source.lstrip().startswith("{"):
        try:
            kind = "Jupyter notebook" if "cells" in json.loads(source) else "JSON document"
        except (ValueError, RecursionError):
            kind = ""
        if kind:
            return (
                f"This is a {kind}. Give its code as a Python file; for a notebook: jupyter nbconvert --to script FILE."
            )
    if failure.phase != "compile":
        return ""
    rows = source.splitlines()
    row = rows[failure.line - 1] if failure.line and failure.line <= len(rows) else ""
    if _COMMAND.match(row):
        return "This line is a command of a notebook: remove the lines that begin with %, ! or ?."
    begun = (row for row in map(str.strip, rows) if row and (not row.startswith("#") or _C_LINE.match(row)))
    if _C_LINE.match(next(begun, "")):  # no comment of Python
        return _C_SOURCE
    return next((advice for pattern, advice in _SHAPES if re.search(pattern, source)), "")


def _on_modules(said: str, kernel: Kernel) -> str:
    """Advice on an import that failed."""
    if "attempted relative import with no known parent package" in said:
        if kernel.files:
            return "Import a module the same way everywhere: in kernel.py write `from .module import ...`, too."
        return f"A kernel of one file has no modules beside it. If you need one, {_FOLDER}."
    found = _MODULE.search(said)
    if found is None:
        return ""
    name = found[1]
    package = name.partition(".")[0]
    if found[2] or package in _OWN:
        return f"{name} is not in the kernel's folder: {_FOLDER}."
    where = "neither in the kernel's folder nor installed" if kernel.files else "not installed here"
    return f"{name} is {where}. If it is code of your own, {_FOLDER}. If it is a package of this name: {python_install(package)}"


def _on_files(said: str, kernel: Kernel) -> str:
    """Advice on a file or a program that a kernel does not find."""
    if re.search(r"'pip3?', 'install'", said):
        return f"A kernel cannot install packages. Do it before: {python_install('PACKAGE')}"
    found = _NO_FILE.search(said)
    if found is None or re.search(r"\.(?:cu|cuh|cpp|cc|h|hpp|so|ptx)$", found[1] or ""):
        return ""
    name = (found[1] or found[2]).rpartition("/")[2]
    if re.search(r"open\(.*, *(?:mode=)?['\"][wax]|\bnp\.save|\.save\w*\(|logging", said):
        return _WRITES
    if "subprocess.py" in said and "." not in name:
        return f"The program {name} is not installed here."
    opened = f"open it as pathlib.Path(__file__).parent / {name!r}"
    if any(file.rpartition("/")[2] == name for file in kernel.files):
        return f"The working folder is not the kernel's: {opened}."
    return f"A kernel sees no other files than its own: {_FOLDER}. Then {opened}."


def _on_results(verdict: Verdict, kernel: Kernel) -> str:
    """Advice on wrong outputs: work that nobody waits for, or a missing barrier where there are barriers."""
    for text in python_texts(kernel):
        if line := _unwaited(text):
            return (
                f"Line {line} starts a collective and does not wait for it: call wait() on the handle that it returns."
            )
    if verdict is Verdict.WRONG_RESULT and any(map(_PEERS.search, python_texts(kernel))):
        return f"{ADVICE[verdict]} A missing barrier shows as stale values."
    return ""


def _unwaited(text: str) -> int:
    """The line of a call that starts a collective whose handle is dropped or never waited for; 0 if there is none."""
    try:
        nodes = list(ast.walk(ast.parse(text if len(text) <= _READ else "")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0
    waits = any(isinstance(node, ast.Attribute) and node.attr in ("wait", "wait_all", "wait_tensor") for node in nodes)
    dropped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Call) and _starts(node) and (id(node) in dropped or not waits):
            return node.lineno
    return 0


def _starts(call: ast.Call) -> bool:
    """Whether a call returns before its communication has ended."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    asked = any(
        word.arg == "async_op" and isinstance(word.value, ast.Constant) and word.value.value for word in call.keywords
    )
    by_place = name.startswith(_COLLECTIVES) and any(isinstance(a, ast.Constant) and a.value is True for a in call.args)
    return asked or by_place or name in _UNWAITED
