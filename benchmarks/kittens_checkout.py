"""`python -m benchmarks kittens CHECKOUT`: which kernels of a ThunderKittens checkout compile here, and why the others do not.

On two GPUs `THUNDERKITTENS_ROOT=CHECKOUT pytest tests/gpu/test_kittens.py` judges kernels over the same headers.
"""

import os
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from arena.cli.options import json_option, number_option
from arena.cli.output import print_json, print_line
from arena.errors import UsageError
from arena.machine.facts import nvcc
from problems.catalogue import load_catalogue
from sandbox.machine import thunderkittens

ARCH = "sm_90a"
NVCC_S = 600.0
PASSES = "compiles"
_FLAGS = (
    *("-cubin", "-std=c++20", "-DKITTENS_HOPPER", "-gencode", "arch=compute_90a,code=sm_90a", "--use_fast_math"),
    *("--expt-extended-lambda", "--expt-relaxed-constexpr", "-DTORCH_EXTENSION_NAME=kernel"),
)
"""The flags of the library's own kernels."""


@dataclass(frozen=True)
class CheckedKernel:
    """The outcome of one kernel."""

    name: str
    outcome: str
    """PASSES, else the verdict and its line."""
    seconds: float


@click.command()
@click.argument("checkout", type=click.Path(path_type=Path, file_okay=False, exists=True))
@number_option("--world", within=(2, 8), default=2, help="The number of GPUs.")
@json_option
def command(checkout: Path, world: int, as_json: bool) -> None:
    """Compile the kit's starter and the kernels of kernels/parallel in this CHECKOUT for Hopper. Needs no GPU."""
    root = checkout.resolve()
    if lacks := thunderkittens.lacking(root):
        raise UsageError(lacks, "name a checkout of HazyResearch/ThunderKittens")
    if not as_json:
        print_line(f"ThunderKittens, commit {thunderkittens.commit(root) or 'unknown'}, {world} GPUs")
    found = []
    for row in checked(root, world):
        found.append(row)
        if not as_json:
            print_line(f"{row.seconds:6.1f} s  {row.name}: {row.outcome}")
    if as_json:
        print_json(found)
        return
    print_line(f"{sum(row.outcome == PASSES for row in found)} of {len(found)} compile")


def checked(root: Path, world: int) -> Iterator[CheckedKernel]:
    """Compiles the starter through NVRTC, then the checkout's own parallel kernels through nvcc."""
    os.environ[thunderkittens.VARIABLE] = str(root)
    from sandbox.kit import kittens, templates
    from sandbox.kit.errors import CompileError

    problem = load_catalogue().find("1")
    starter = templates.fill("kittens", problem.title, "solution(tensor)", problem.baseline_source)
    begun = time.perf_counter()
    try:
        kittens.to_cubin(starter.split('r"""')[1].split('"""')[0], ARCH, kittens.nvrtc_options())
        outcome = PASSES
    except CompileError as error:
        outcome = f"COMPILE_ERROR: {error.message}"
    yield CheckedKernel("the starter `kittens`, with NVRTC", outcome, time.perf_counter() - begun)
    for path in sorted((root / "kernels" / "parallel").rglob("*.cu")):
        begun = time.perf_counter()
        outcome = _with_nvcc(root, path, world)
        yield CheckedKernel(str(path.relative_to(root)), outcome, time.perf_counter() - begun)


def _with_nvcc(root: Path, path: Path, world: int) -> str:
    from torch.utils.cpp_extension import include_paths

    from sandbox.kit import kittens
    from sandbox.kit.compilers import gcc
    from sandbox.kit.errors import CompileError

    try:
        kittens.refuse(path.read_text(encoding="utf-8", errors="replace"), world)
    except CompileError as error:
        return f"COMPILE_ERROR: {error.message}"
    compiler = nvcc()
    if compiler is None:
        return "not compiled: no nvcc"
    with tempfile.TemporaryDirectory(prefix="pkb-kittens-") as folder:
        ours = kittens.linked(root, Path(folder) / "tree")
        paths = [*ours, str(path.parent), *include_paths(), sysconfig.get_paths()["include"]]
        output = str(Path(folder) / "kernel.cubin")
        words = [compiler[0], *_FLAGS, *(f"-I{each}" for each in paths), str(path), "-o", output]
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=NVCC_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"COMPILE_ERROR: nvcc was still compiling after {NVCC_S:.0f} s"
    if done.returncode == 0:
        return PASSES
    return f"COMPILE_ERROR: {gcc.first_error(done.stderr + done.stdout)[0]}"
