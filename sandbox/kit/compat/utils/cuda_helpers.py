"""`compile_cuda_extension` as kernels written for the ParallelKernelBench harness call it.

One rank of a world builds the extension with torch's load_inline, the others load the same file; it is cached
by content. CUDA sources need nvcc, which takes 20 to 60 seconds for a file that includes torch's headers;
`sandbox.kit.cuda` takes 0.1 s.
"""

import os
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import kittens
from sandbox.kit.compilers import build
from sandbox.kit.errors import CompileError


def compile_cuda_extension(
    name: str,
    cuda_source: str | list[str] = "",
    cpp_source: str | list[str] = "",
    functions: list[str] | None = None,
    extra_cuda_cflags: list[str] | None = None,
    extra_cflags: list[str] | None = None,
    extra_ldflags: list[str] | None = None,
    **options: Any,
) -> ModuleType:
    """Builds and imports a torch extension from source texts.

    cuda_source: CUDA C++, empty for an extension without kernels. cpp_source: C++ of the host side
    (load_inline's names cuda_sources and cpp_sources work, too). functions: names to export (if the source has no
    PYBIND11_MODULE). Other options go to load_inline. A source that includes ThunderKittens is compiled with the
    checkout of THUNDERKITTENS_ROOT, and its TKParallelTensor uses the kit's memory. Raises CompileError.
    """
    cuda = _texts(options.pop("cuda_sources", cuda_source))
    cpp = _texts(options.pop("cpp_sources", cpp_source))
    flags = {"cuda": extra_cuda_cflags or [], "cpp": extra_cflags or [], "ld": extra_ldflags or []}
    root: Path | None = None
    if any(map(kittens.are_included, (*cuda, *cpp))):
        root = kittens.checkout()
        for text in (*cuda, *cpp):
            kittens.refuse(text, dist.get_world_size())
    key = build.content_key(
        "load_inline",
        torch.__version__,
        str(torch.version.cuda),
        _arch(),
        name,
        *cuda,
        *cpp,
        repr((functions, flags, options)),
        kittens.key(root) if root else "",
    )
    module_name = f"{name}_{key[:12]}"

    def make(output: Path) -> None:
        folder = output.with_name(output.name + ".build")
        folder.mkdir()
        try:
            if root is not None:
                paths = kittens.linked(root, folder / "kittens")
                options["extra_include_paths"] = [*paths, *(options.get("extra_include_paths") or ())]
            _load_inline(module_name, cuda, cpp, functions, flags, options, folder)
            shutil.move(folder / f"{module_name}.so", output)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return build.import_extension(module_name, build.once(f"{key}.ext.so", make))


def _texts(source: str | list[str]) -> list[str]:
    texts = [source] if isinstance(source, str) else list(source)
    return [text for text in texts if text.strip()]


def _arch() -> str:
    """The GPU architecture in the form of TORCH_CUDA_ARCH_LIST, with an `a` on Hopper, where wgmma needs it."""
    named = os.environ.get("TORCH_CUDA_ARCH_LIST")
    if named:
        return named
    if not torch.cuda.is_available():
        return ""
    major, minor = torch.cuda.get_device_capability()
    return f"{major}.{minor}" + ("a" if major >= 9 else "")


def _loaded(library: str) -> str:
    """The file of a library that this process has loaded, by the start of its name; empty if there is none.

    The linker does not find the driver by itself if the toolkit has no stubs.
    """
    paths = (line.split(maxsplit=5)[-1].strip() for line in Path("/proc/self/maps").read_text().splitlines())
    return next((path for path in paths if Path(path).name.startswith(library)), "")


def _load_inline(
    name: str,
    cuda: list[str],
    cpp: list[str],
    functions: list[str] | None,
    flags: dict[str, list[str]],
    options: dict[str, Any],
    folder: Path,
) -> None:
    from torch.utils import cpp_extension

    if cuda and cpp_extension.CUDA_HOME is None:
        raise CompileError(
            "compile_cuda_extension needs nvcc (the CUDA toolkit), which is not here; sandbox.kit.cuda needs none"
        )
    arch = _arch()
    if arch:
        os.environ["TORCH_CUDA_ARCH_LIST"] = arch
    linked = flags["ld"]
    if "-lcuda" in linked and (driver := _loaded("libcuda.so")):
        (folder / "libcuda.so").symlink_to(driver)
        linked = [*linked, f"-L{folder}"]
    try:
        cpp_extension.load_inline(  # type: ignore[no-untyped-call]
            name=name,
            cpp_sources=cpp,
            cuda_sources=cuda,
            functions=functions,
            extra_cflags=flags["cpp"],
            extra_cuda_cflags=flags["cuda"],
            extra_ldflags=linked,
            build_directory=str(folder),
            **options,
        )
    except (RuntimeError, OSError) as error:
        text = f"{error}\n{error.__cause__ or ''}"
        raise CompileError(f"the extension {name} does not build", None, text[:65536]) from None
