"""Work of compilers that kernels import counts as compiling, from the moment they are loaded."""

import fcntl
import os
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.kit.compilers import build, compiling
from sandbox.kit.compilers.gcc import first_error
from sandbox.kit.errors import CompileError
from sandbox.rank import kernel_compilers

MADE = """
from shown import said
said.append("loads")
def build(): said.append("builds"); return 7
class Tuner:
    def bench(self): said.append("tunes"); return build()
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The list to which the hooks and a simulated compiler append, in order."""
    (tmp_path / "shown.py").write_text("said = []\n")
    (tmp_path / "made_compiler.py").write_text(MADE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))

    def patch(module: object) -> None:
        for path in (("build",), ("Tuner", "bench"), ("Tuner", "gone"), ("Gone", "bench")):
            kernel_compilers._attribute(*path)(module)  # type: ignore[arg-type]

    monkeypatch.setattr(kernel_compilers, "PATCHES", {"made_compiler": patch})
    import shown  # type: ignore[import-not-found]

    monkeypatch.setattr(compiling, "on_compile_start", lambda: shown.said.append("<"))
    monkeypatch.setattr(compiling, "on_compile_end", lambda: shown.said.append(">"))
    yield shown.said
    for name in ("shown", "made_compiler"):
        sys.modules.pop(name, None)


def test_loading_building_and_tuning_count_each_once(said: list[str]) -> None:
    kernel_compilers.watch()
    import made_compiler  # type: ignore[import-not-found]

    assert made_compiler.build() == 7
    assert made_compiler.Tuner().bench() == 7
    assert said == ["<", "loads", ">", "<", "builds", ">", "<", "tunes", "builds", ">"]


def test_what_was_loaded_before_is_shown_as_well(said: list[str]) -> None:
    import made_compiler

    kernel_compilers.watch()
    said.clear()
    made_compiler.build()
    assert said == ["<", "builds", ">"]


def test_a_failure_ends_it_too(said: list[str]) -> None:
    with pytest.raises(ZeroDivisionError), compiling.shown(), compiling.shown():
        1 / 0  # noqa: B018
    assert said == ["<", ">"]


EXTENSION = """
built = []
def _jit_compile(name, sources, extra_cflags, build_directory, is_python_module, is_standalone=False):
    import importlib.util, pathlib
    if "wrong" in pathlib.Path(sources[0]).read_text():
        raise RuntimeError("Error building extension\\nmain.cpp:3:9: error: expected a ; here")
    built.append(name)
    file = pathlib.Path(build_directory) / (name + ".py")
    file.write_text("number = 7")
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""


def test_extension_builds_once_and_fails_as_compile_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKB_KERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "import_extension", lambda name, file: (name, file))  # the simulated one is no library
    source = tmp_path / "main.cpp"
    source.write_text("int x;")
    made: list[types.ModuleType] = []
    for _ in range(2):  # two modules stand for two processes
        made.append(types.ModuleType("made_extension"))
        exec(EXTENSION, made[-1].__dict__)
        kernel_compilers._extension(made[-1])
    first = made[0]._jit_compile("twice", [str(source)], ["-O2"], str(tmp_path), True)
    assert first.number == 7
    name, file = made[1]._jit_compile("twice", [str(source)], ["-O2"], str(tmp_path), True)
    assert name == "twice"
    assert file.read_text() == "number = 7"
    assert (made[0].built, made[1].built) == (["twice"], [])
    monkeypatch.setitem(sys.modules, "kernel", types.SimpleNamespace(__path__=[str(tmp_path)]))  # type: ignore[arg-type]
    made[1]._jit_compile("other", "main.cpp", ["-O3"], str(tmp_path), True)
    assert made[1].built == ["other"]  # built again, because the flags differ
    source.write_text("wrong")
    with pytest.raises(CompileError, match="expected a ; here"):
        made[1]._jit_compile("third", [str(source)], [], str(tmp_path), True)


def test_build_that_another_rank_never_ends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKB_KERNEL_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "WAIT_S", 0.05)
    with (tmp_path / "x.so.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CompileError, match=r"another rank is still compiling x\.so"):
            build.once("x.so", Path.touch)

    def fails(unfinished: Path) -> None:
        unfinished.touch()
        raise CompileError("no such type")

    with pytest.raises(CompileError, match="no such type"):
        build.once("y.so", fails)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.so.lock", "y.so.error", "y.so.lock"]
    later = time.time_ns() + 10**12
    os.utime(tmp_path / "y.so.error", ns=(later, later))  # of a build that this rank waited for
    with pytest.raises(CompileError, match="no such type"):
        build.once("y.so", Path.touch)
    os.utime(tmp_path / "y.so.error", ns=(0, 0))
    assert build.once("y.so", Path.touch) == tmp_path / "y.so"
    monkeypatch.setattr(
        build, "_lock", lambda fd, name: (tmp_path / name).touch()
    )  # another rank has built it meanwhile
    assert build.once("z.so", fails) == tmp_path / "z.so"


def test_artefacts_go_where_this_user_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKB_KERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert build.once("a", Path.touch) == tmp_path / "cache/a"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    own = tmp_path / f"pkb-kernels-{os.getuid()}"
    assert build.once("a", Path.touch) == tmp_path / "cache/a"
    assert build.once("b", Path.touch) == own / "b" == build.once("b", Path.unlink)
    assert own.stat().st_mode & 0o777 == 0o700
    another = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: another)
    own.rename(tmp_path / f"pkb-kernels-{another}")
    with pytest.raises(CompileError, match="belongs to another user"):
        build.once("c", Path.touch)


def test_hooks_are_called_one_after_another(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    locked = []
    for name in ("on_compile_start", "on_compile_end"):
        monkeypatch.setattr(compiling, name, lambda: locked.append(compiling._lock.locked()))
    with compiling.shown(), compiling.shown():
        assert len(locked) == 1
    assert locked == [True, True]


def test_each_kernel_text_has_its_own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = set()
    for text in ("", "one", "two"):
        (tmp_path / f"kernel{text}.py").write_text(text)
        kernel = types.SimpleNamespace(__file__=str(tmp_path / f"kernel{text}.py"))
        monkeypatch.setitem(sys.modules, "kernel", kernel)  # type: ignore[arg-type]
        folders.add(build.cache_dir())
    assert len(folders) == 3


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/tmp/kernel.py:3:9: error: expected ;", ("kernel.py:3: expected ;", 3)),
        ("kernel.cu(7): error: no such type", ("kernel.cu:7: no such type", 7)),
        ("ld: undefined reference to `f'\n", ("undefined reference to `f'", None)),
        ("first\nlast\n", ("the compiler failed: last", None)),
        ("\n", ("the compiler failed: without saying why", None)),
    ],
)
def test_first_error_of_compiler_is_one_line(text: str, found: tuple[str, int | None]) -> None:
    assert first_error(text) == found
