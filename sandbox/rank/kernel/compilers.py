"""Compilers that kernels bring along: what torch.compile, load_inline and Triton take is shown as compiling. Rank side.

Their modules are found out when a kernel imports them: loading torch.compile's alone takes seconds, and nothing here does. What
load and load_inline build is built once per world and kept for the next world of the same kernel, as what the kit compiles is.
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
    """From now on the compilers of PATCHES are shown; those that are loaded already, too."""
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
    """torch's load and load_inline, which both end in `_jit_compile`."""
    signature = inspect.signature(module._jit_compile)
    plain = _shown(module._jit_compile)
    loaded: set[str] = set()

    @functools.wraps(plain)
    def jit_compile(*arguments: Any, **named: Any) -> Any:
        given = signature.bind(*arguments, **named).arguments
        name, sources = given["name"], given["sources"]
        if given.get("is_standalone") or not given.get("is_python_module") or name in loaded:
            return plain(*arguments, **named)
        texts = [Path(path).read_text() for path in ([sources] if isinstance(sources, str) else sources)]
        flags = [
            value for key, value in given.items() if key not in ("sources", "build_directory", "verbose")
        ]
        built: list[ModuleType] = []

        def make(output: Path) -> None:
            try:
                built.append(plain(*arguments, **named))
            except RuntimeError as error:
                raise CompileError(*first_error(str(error)), str(error)[:65536]) from None
            shutil.copyfile(str(built[0].__file__), output)

        key = build.content_key("torch extension", torch.__version__, _architecture(), repr(flags), *texts)
        file = build.once(f"{key}.so", make)
        loaded.add(name)
        return built[0] if built else build.import_extension(name, file)

    module._jit_compile = jit_compile


def _architecture() -> str:
    """The GPU that an extension is built for; empty without one."""
    named = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
    return f"{named} {torch.cuda.get_device_capability()}" if torch.cuda.is_available() else named


def _attribute(*path: str) -> Callable[[ModuleType], None]:
    """A patch that shows one function of a module; nothing where this version has no such function."""

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
"""By module: what is done when it has been loaded. The loading itself counts as compiling."""


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
    """A module's own loader, with its work shown and its compiler patched afterwards."""

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
