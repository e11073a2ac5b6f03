'''C++ for CPU ranks.

    from sandbox.kit import cpp, symm

    lib = cpp.compile(r"""
    extern "C" void scale(const Px& px, const bf16* x, bf16* y, long n, float factor, u32 epoch) {
        for (long i = 0; i < n; ++i) y[i] = from_float<bf16>(to_float(x[i]) * factor);
        px_barrier(px, 0, epoch);
    }
    """)
    lib.scale(symm.px, x, y, x.numel(), 0.5, symm.next_epoch())

Every `extern "C"` function can be called. The header px_cpu.h is included already (Px, barriers, signals,
bf16). Tensors are passed for pointers and checked against the pointer's type; an int (an address) is accepted
for any pointer. C++ exceptions become Python errors, a barrier that times out becomes BarrierTimeout. The GIL
is released during a call.
'''

import ctypes
import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sandbox.kit.compilers import build, gcc, source_files
from sandbox.kit.compilers.arguments import SCALARS, Converter, Function, Parameter, converter, ctypes_of, exported
from sandbox.kit.errors import ArgumentError, BarrierTimeout, CompileError, KernelError, ranks_text
from sandbox.kit.layout import Px

Waits = list[tuple[str, int, int]]
"""The waits of a call for other ranks: "px_barrier" or "px_wait", begin and end in nanoseconds of `time.time_ns`."""
Watch = Callable[[str, int, int, Waits], None]
watch: Watch | None = None
"""Called after each call of what is compiled from now on: watch(name, begin, end, waits), in nanoseconds. For profiles."""
_HEADER = '#include "px_cpu.h"\n'
_GUARD = '\n#line 1 "<kit>"\n' + (gcc.INCLUDE / "px_guard.h").read_text()


class _TimedWait(ctypes.Structure):
    _fields_ = (
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("barrier", ctypes.c_uint32),
        ("slot", ctypes.c_uint32),
    )


class _Failure(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("missing", ctypes.c_uint32),
        ("slot", ctypes.c_uint32),
        ("value", ctypes.c_uint32),
        ("text", ctypes.c_char * 240),
    )


def compile(source: str | os.PathLike[str], flags: Sequence[str] = ()) -> build.CompiledModule:
    """Compiles C++ once per world and loads it on this rank.

    source: C++ text with at least one `extern "C"` function definition, or the path of a file beside the kernel.
    flags: added to gcc's (for example "-fopenmp"). Raises CompileError with `line` in the calling
    Python file; without a compiler, its message names what to install.
    """
    given = source_files.read(source, sys._getframe(1))
    flags = flags if watch is None else (*flags, "-DPX_TIMED")
    functions = exported(given.text)
    if not functions:
        raise CompileError('nothing to call: define at least one function as `extern "C" void name(...) { ... }`')
    whole = _HEADER + given.located + _GUARD + "".join(map(_wrapper, functions.values()))
    header = (gcc.INCLUDE / "px_cpu.h").read_text()
    name = build.content_key(given.text, *given.headers, header, _GUARD, *flags, gcc.fingerprint(), *gcc.FLAGS) + ".so"

    def make(output: Path) -> None:
        with given.readable():
            gcc.compile_shared(whole, (*flags, *given.flags), output)

    artefact = build.once(name, make)
    try:
        library = ctypes.CDLL(str(artefact))
    except OSError as error:
        raise CompileError(f"the compiled kernel does not load: {error}") from None
    bound = {f.name: _bind(library, f) for f in functions.values()}
    if watch is not None:
        bound = {name: _watched(library, name, call, watch) for name, call in bound.items()}
    return build.CompiledModule(bound, artefact, 'extern "C" function')


def _carrier(parameter: Parameter) -> tuple[str, Any]:
    """How Python passes a parameter: the C type of the wrapper's parameter, and its ctypes type."""
    if parameter.pointers:
        return "void*", ctypes.c_void_p
    if parameter.is_px:
        return "const Px*", ctypes.POINTER(Px)
    assert parameter.scalar is not None
    if parameter.scalar.kind == "float":
        return "double", ctypes.c_double
    return ("u64", ctypes.c_uint64) if parameter.scalar.low == 0 else ("i64", ctypes.c_int64)


def _wrapper(function: Function) -> str:
    listed, passed = [], []
    for index, parameter in enumerate(function.parameters):
        listed.append(f"{_carrier(parameter)[0]} a{index}")
        passed.append(f"*a{index}" if parameter.is_px and not parameter.pointers else f"({parameter.type})a{index}")
    call = f"{function.name}({', '.join(passed)})"
    if function.returns != "void":
        if function.returns not in SCALARS:
            raise CompileError(f"{function.name} returns {function.returns}; return void or an arithmetic type")
        listed.append(f"{function.returns}* result")
        call = f"*result = {call}"
    listed.append("PxFailure* failure")
    return f"PX_EXPORT int px_call_{function.name}({', '.join(listed)}) {{ PX_GUARDED(failure, {call}) }}\n"


def _bind(library: ctypes.CDLL, function: Function) -> Callable[..., Any]:
    entry = library[f"px_call_{function.name}"]
    converters: tuple[Converter, ...] = tuple(
        converter(p, i, function, "cpu") for i, p in enumerate(function.parameters)
    )
    count = len(converters)
    result_type = None if function.returns == "void" else ctypes_of(SCALARS[function.returns])
    entry.restype = ctypes.c_int
    entry.argtypes = [
        *(_carrier(p)[1] for p in function.parameters),
        *([ctypes.POINTER(result_type)] if result_type else []),
        ctypes.POINTER(_Failure),
    ]
    failure = _Failure()
    failure_at = ctypes.byref(failure)

    def call(*arguments: Any) -> Any:
        if len(arguments) != count:
            raise ArgumentError(f"{function.name} takes {count} arguments, got {len(arguments)}: {function}")
        ready = [convert(value) for convert, value in zip(converters, arguments)]  # noqa: B905 - counted above
        if result_type is None:
            if entry(*ready, failure_at):
                raise _error(function, failure, arguments)
            return None
        result = result_type()
        if entry(*ready, ctypes.byref(result), failure_at):
            raise _error(function, failure, arguments)
        return result.value

    call.__name__ = call.__qualname__ = function.name
    call.__doc__ = str(function)
    return call


def _watched(library: ctypes.CDLL, name: str, call: Callable[..., Any], watch: Watch) -> Callable[..., Any]:
    """The call, which reports its time and its waits."""

    @functools.wraps(call)
    def watched(*arguments: Any) -> Any:
        begin = time.time_ns()
        try:
            return call(*arguments)
        finally:
            end = time.time_ns()
            noted = ctypes.POINTER(_TimedWait)()
            count = library.px_take_waits(ctypes.byref(noted))
            kinds = ("px_wait", "px_barrier")
            watch(name, begin, end, [(kinds[noted[at].barrier], noted[at].start, noted[at].end) for at in range(count)])

    return watched


def _error(function: Function, failure: _Failure, arguments: Sequence[Any]) -> Exception:
    if failure.kind == 1:
        ranks = next((a.ranks for a in arguments if isinstance(a, Px)), tuple(range(8)))
        missing = [rank for index, rank in enumerate(ranks) if failure.missing >> index & 1]
        return BarrierTimeout(
            f"{function.name} waited in vain for {ranks_text(missing)} "
            f"(slot {failure.slot}, value {failure.value}): "
            "do all ranks call it, with the same slots and epochs?",
            missing,
        )
    if failure.kind == 2:
        return KernelError(f"{function.name} used slot {failure.slot}; a kernel has slots 0..1007")
    return KernelError(f"{function.name} threw: {failure.text.decode(errors='replace')}")
