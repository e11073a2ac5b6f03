"""Runs gcc on C++ text: finds it, kills it with its children if it hangs, and reports errors with the user's lines."""

import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from sandbox.kit.compilers.build import TIMEOUT_S
from sandbox.kit.errors import CompileError

FLAGS = (
    *("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC"),
    "-fvisibility=hidden",  # otherwise a kernel's own `read` would resolve to that of the C library
    *("-fno-math-errno", "-fmax-errors=5", "-fdiagnostics-color=never"),
)
INCLUDE = Path(__file__).parents[1] / "include"
_NO_COMPILER = (
    "no C++ compiler (g++) on this machine: install one (Debian, Ubuntu: apt install g++; "
    "Fedora: dnf install gcc-c++), or write the kernel with torch and symm alone"
)


@functools.cache
def compiler() -> str | None:
    """Path of the C++ compiler: $CXX if set, else g++ or c++; None if there is none."""
    named = os.environ.get("CXX")
    for name in (named,) if named else ("g++", "c++"):
        found = shutil.which(name)
        if found:
            return found
    return None


@functools.cache
def fingerprint() -> str:
    """What determines the machine code besides source and flags: the compiler file and the processor's features."""
    path = compiler()
    if path is None:
        raise CompileError(_NO_COMPILER)
    status = os.stat(os.path.realpath(path))
    try:
        features = re.findall(
            r"^(?:flags|Features|model name)\s*:.*$", Path("/proc/cpuinfo").read_text(), re.MULTILINE
        )[:2]
    except OSError:
        features = []
    return f"{path} {status.st_size} {status.st_mtime_ns} {features}"


def compile_shared(source: str, flags: tuple[str, ...], output: Path) -> None:
    """Compiles C++ into a shared object.

    Raises CompileError, whose line is the first error's line in a file that is not the kit's.
    """
    path = compiler()
    if path is None:
        raise CompileError(_NO_COMPILER)
    with tempfile.TemporaryDirectory(prefix="pkb-gcc-", dir=output.parent) as scratch:
        command = [path, *FLAGS, *flags, f"-I{INCLUDE}", "-x", "c++", "-", "-o", str(output)]
        environment = {**os.environ, "LC_ALL": "C", "TMPDIR": scratch}
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            errors="replace",
            start_new_session=True,  # a jail may not give process groups of their own
        ) as process:
            try:
                _, text = process.communicate(source, timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                # If only gcc's driver is killed, its compiler process keeps running.
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                raise CompileError(f"gcc was still compiling after {TIMEOUT_S:.0f} s") from None
    if process.returncode != 0:
        message, line = first_error(text)
        raise CompileError(message, line, text[:65536])


def first_error(text: str) -> tuple[str, int | None]:
    """The first error in the output of gcc, nvcc or NVRTC as one line, and its line number."""
    for pattern in (
        r"^(.+?):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$",
        r"^(.+?)\((\d+)\): (?:catastrophic )?error:? (.*)$",
    ):
        match = re.search(pattern, text, re.MULTILINE)
        if match:
            return f"{os.path.basename(match[1])}:{match[2]}: {match[3]}", int(match[2])
    undefined = re.search(r"undefined (?:reference to|symbol:?) .*", text)
    if undefined:
        return undefined[0], None
    return "the compiler failed: " + (text.strip().splitlines() or ["without saying why"])[-1], None
