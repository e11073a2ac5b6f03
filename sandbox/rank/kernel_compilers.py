"""Reports the work of torch.compile, load_inline and Triton as compilation.

A hook patches their modules when a kernel imports them, because importing torch.compile alone takes seconds. load and load_inline
build once per world, and the kernel cache keeps the result for the next world of the same kernel.
"""

import functools
import importlib.machinery
import inspect
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from sandbox.kit.compilers import build, compiling
from sandbox.kit.compilers.gcc import first_error
from sandbox.kit.errors import CompileError


def watch() -> None:
    """Starts to report the compilers of PATCHES, including those that are loaded already."""
    for name, patch in PATCHES.items():
        if name in sys.modules:
            patch(sys.modules[name])
    sys.meta_path.insert(0, _Finder())


def _shown(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def compile_(*arguments: Any, **named: Any) -> Any:
        with compiling.shown():
            return function(*arguments, **named)

    return compile_


def _dynamo(module: ModuleType) -> None:
    module.on_compile_start(lambda *_: compiling.begin())
    module.on_compile_end(lambda *_: compiling.end())


def _extension(module: Any) -> None:
    """Patches torch's load and load_inline, which both call `_jit_compile`."""
    signature = inspect.signature(module._jit_compile)
    plain = _shown(module._jit_compile)
    loaded: set[str] = set()

    @functools.wraps(plain)
    def jit_compile(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        given = bound.arguments
        name, folder = given["name"], build.kernel_folder()
        sources = [given["sources"]] if isinstance(given["sources"], str) else list(given["sources"])
        if folder is not None:  # a relative path begins at the kernel's folder
            given["sources"] = sources = [path if Path(path).exists() else str(folder / path) for path in sources]
        if given.get("is_standalone") or not given.get("is_python_module") or name in loaded:
            return plain(*bound.args, **bound.kwargs)
        texts = [Path(path).read_text() for path in sources]
        flags = [value for key, value in given.items() if key not in ("sources", "build_directory", "verbose")]
        built: list[ModuleType] = []

        def make(output: Path) -> None:
            try:
                built.append(plain(*bound.args, **bound.kwargs))
            except RuntimeError as error:
                raise CompileError(*first_error(str(error)), str(error)[:65536]) from None
            shutil.copyfile(str(built[0].__file__), output)

        told = repr(flags) if folder is None else repr(flags).replace(str(folder), "")  # another one in every world
        key = build.content_key("torch extension", torch.__version__, _architecture(), told, *texts)
        file = build.once(f"{key}.so", make)
        loaded.add(name)
        return built[0] if built else build.import_extension(name, file)

    module._jit_compile = jit_compile


def _architecture() -> str:
    """The GPU architecture of an extension, for its cache key; empty without a GPU."""
    named = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
    return f"{named} {torch.cuda.get_device_capability()}" if torch.cuda.is_available() else named


def _attribute(*path: str) -> Callable[[ModuleType], None]:
    """A patch that reports one function of a module, if this version has it."""

    def patch(module: ModuleType) -> None:
        *to, name = path
        owner: Any = module
        for part in to:
            owner = getattr(owner, part, None)
        if hasattr(owner, name):
            setattr(owner, name, _shown(getattr(owner, name)))

    return patch


PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "torch._dynamo": _dynamo,
    "torch._inductor": lambda module: None,
    "torch.utils.cpp_extension": _extension,
    "triton": lambda module: None,
    "triton.compiler": _attribute("compile"),
    "triton.runtime.autotuner": _attribute("Autotuner", "_bench"),
}
"""Patches by module, applied when the module has been loaded. Loading it counts as compilation."""


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _ShownLoader(spec.loader, PATCHES[fullname])
        return spec


class _ShownLoader(Loader):
    """A module's own loader, which reports its work and patches the module."""

    def __init__(self, loader: Any, patch: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._patch = patch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        with compiling.shown():
            self._loader.exec_module(module)
        self._patch(module)
