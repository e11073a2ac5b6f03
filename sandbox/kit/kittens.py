'''ThunderKittens tiles for GPU ranks, compiled with NVRTC, over the peers' memory.

    from sandbox.kit import kittens, symm

    mod = kittens.compile(r"""
    #include "kittens.cuh"
    using namespace kittens;
    using Tile = rt_fl<16, 64>;
    using Rows = gl<bf16, 1, 1, -1, 64>;
    extern "C" __global__ void add_all(Px px, const bf16* staged, bf16* y, int rows, u32 epoch) {
        px_barrier(px, blockIdx.x, epoch);
        Tile sum, part;
        warp::zero(sum);
        for (int p = 0; p < px.world; ++p) {
            PxView<Rows> peer(px_at(px, p, staged), 1, 1, rows, 64);
            warp::load(part, *peer, {0, 0, (int)blockIdx.x, 0});
            warp::add(sum, sum, part);
        }
        PxView<Rows> result(y, 1, 1, rows, 64);
        warp::store(*result, sum, {0, 0, (int)blockIdx.x, 0});
    }
    """)
    mod.add_all[rows // 16, 32](symm.px, staged, y, rows, symm.next_epoch())

`kittens.compile` is `cuda.compile` with the headers of a ThunderKittens checkout, which THUNDERKITTENS_ROOT or the
setting `thunderkittens` names. px.cuh is included, without its own bf16 and f16. NVRTC gets the headers without their
host side, so there are no TMA descriptors. Kernels for upstream's harness have them:
`utils.cuda_helpers.compile_cuda_extension` compiles with nvcc, and `utils.parallelkittens_runtime` gives them memory.
There is no multicast: use px_barrier and the peers' plain addresses. Sources of that harness that need what no world here has
are refused before nvcc compiles them for a minute.
'''

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from sandbox.kit import cuda
from sandbox.kit.compilers import build, gcc, nvrtc, source_files
from sandbox.kit.compilers.gcc import INCLUDE
from sandbox.kit.errors import CompileError
from sandbox.machine import thunderkittens

_OWN = Path("pyutils") / "parallel_tensor.cuh"
"""The header that the kit replaces."""
_INCLUDED = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*[<"](?:[\w./]*/)?(?:kittens\.cuh|pyutils/|prototype\.cuh)', re.MULTILINE
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEVICES = re.compile(r"\bNUM_DEVICES\s*(?:=\s*|\s)(\d+)")
_MULTICAST = re.compile(
    r"\b(multimem)\b|\bkittens::(barrier_t)\b|\b(barrier_t)\s*<|\b(pgl)\s*<[^;]*?\bNUM_DEVICES\s*(?:>|,\s*true\b)"
)
"""A pgl has multicast unless its third parameter is false."""
_OWN_BARRIER = re.compile(r"\busing\s+barrier_t\b")


def are_included(text: str) -> bool:
    """Whether a source includes ThunderKittens' headers."""
    return bool(_INCLUDED.search(_COMMENT.sub("", text)))


def checkout() -> Path:
    """The checkout with which kernels are compiled. Raises CompileError if there is none."""
    root = thunderkittens.checkout()
    if root is None:
        raise CompileError(thunderkittens.why_missing())
    return root


def refuse(text: str, world: int) -> None:
    """Raises CompileError if a source is for another number of GPUs than `world`, or needs multicast."""
    plain = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    for named in _DEVICES.finditer(plain):
        if int(named[1]) != world:
            where = f"NUM_DEVICES, its line {_line(plain, named)}"
            raise CompileError(f"the CUDA source is for {named[1]} GPUs ({where}), this world has {world}")
    found = None if _OWN_BARRIER.search(plain) else _MULTICAST.search(plain)
    if found is not None:
        what = f"{found[found.lastindex or 0]} with multicast (its line {_line(plain, found)})"
        raise CompileError(
            f"the CUDA source uses {what}, which needs NVLS, and the kit's symmetric memory has none; "
            "use pgl<GL, NUM_DEVICES, false>, with a barrier of that type"
        )


def linked(root: Path, folder: Path) -> list[str]:
    """Makes a tree of links in `folder`: the checkout with the kit's header in it. Returns its include paths."""
    for shown in thunderkittens.FOLDERS:
        _link(root / shown, folder / shown)
    pyutils = folder / "include" / _OWN.parent
    if pyutils.is_symlink():
        pyutils.unlink()
        _link(root / "include" / _OWN.parent, pyutils)
    pyutils.mkdir(exist_ok=True)
    own = folder / "include" / _OWN
    own.unlink(missing_ok=True)
    own.symlink_to(INCLUDE / "kittens" / _OWN)
    return [str(folder / shown) for shown in thunderkittens.FOLDERS]


def key(root: Path) -> str:
    """Identifies the headers in the cache keys of extensions that are built with them."""
    return thunderkittens.fingerprint(root) + (INCLUDE / "kittens" / _OWN).read_text()


def _link(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for entry in source.iterdir():
        (target / entry.name).symlink_to(entry)


def _line(text: str, found: re.Match[str]) -> int:
    return text.count("\n", 0, found.start()) + 1


_STANDARD = ("bit", "concepts", "cstddef", "cstdint", "limits", "type_traits", "utility")
"""Headers of the standard library that ThunderKittens includes and NVRTC lacks. libcu++ has them in a separate
namespace."""
_HEADERS = {name: f"#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n" for name in _STANDARD}
_VIEWS = gcc.INCLUDE / "px_kittens.cuh"
_RENAMED = ("bf16", "f16")
"""Types of px.cuh that have another meaning in ThunderKittens."""


def compile(
    source: str | os.PathLike[str], options: Sequence[str] = (), arch: str | None = None
) -> build.CompiledModule:
    """Compiles CUDA C++ that includes kittens.cuh, once per world, and loads it on this rank's current device.

    source, options, arch and errors: as those of `cuda.compile`. NVRTC needs about a second the first time.
    """
    given = source_files.read(source, sys._getframe(1))
    key = (thunderkittens.fingerprint(checkout()), _VIEWS.read_text(), *_HEADERS.values())
    known = given._replace(headers=(*given.headers, *key))
    return cuda.load(known, (*nvrtc_options(), *options), arch, to_cubin)


def nvrtc_options() -> tuple[str, ...]:
    """Options of NVRTC for the headers. Raises CompileError if there is no checkout."""
    shown = thunderkittens.shown(checkout())
    # Of two -std options, NVRTC uses the last.
    return ("-std=c++20", "-DKITTENS_HOPPER", "-DKITTENS_NO_HOST", *(f"-I{path}" for path in shown))


def to_cubin(source: str, arch: str, options: tuple[str, ...]) -> bytes:
    """Compiles a source with px.cuh and px_kittens.cuh in front. Raises CompileError."""
    renamed = [f"#define {name} px_{name}" for name in _RENAMED]
    restored = [f"#undef {name}" for name in _RENAMED]
    front = [*renamed, nvrtc.header(), *restored, f'#line 1 "{_VIEWS.name}"', _VIEWS.read_text()]
    return nvrtc.to_cubin(source, arch, options, "\n".join(front), _HEADERS)
