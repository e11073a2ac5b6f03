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
There is no multicast: use px_barrier and the peers' plain addresses.
'''

import os
import sys
from collections.abc import Sequence

from sandbox.kit import cuda
from sandbox.kit.compilers import build, gcc, kittens_headers, nvrtc, source_files
from sandbox.machine import thunderkittens

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
    key = (thunderkittens.fingerprint(kittens_headers.checkout()), _VIEWS.read_text(), *_HEADERS.values())
    known = given._replace(headers=(*given.headers, *key))
    return cuda.load(known, (*nvrtc_options(), *options), arch, to_cubin)


def nvrtc_options() -> tuple[str, ...]:
    """Options of NVRTC for the headers. Raises CompileError if there is no checkout."""
    shown = thunderkittens.shown(kittens_headers.checkout())
    # Of two -std options, NVRTC uses the last.
    return ("-std=c++20", "-DKITTENS_HOPPER", "-DKITTENS_NO_HOST", *(f"-I{path}" for path in shown))


def to_cubin(source: str, arch: str, options: tuple[str, ...]) -> bytes:
    """Compiles a source with px.cuh and px_kittens.cuh in front. Raises CompileError."""
    renamed = [f"#define {name} px_{name}" for name in _RENAMED]
    restored = [f"#undef {name}" for name in _RENAMED]
    front = [*renamed, nvrtc.header(), *restored, f'#line 1 "{_VIEWS.name}"', _VIEWS.read_text()]
    return nvrtc.to_cubin(source, arch, options, "\n".join(front), _HEADERS)
