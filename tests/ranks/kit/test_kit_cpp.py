"""C++ kernels: compiling, passing arguments, errors with the user's own lines."""

import textwrap
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from sandbox.kit import cpp, errors, symm
from sandbox.kit.compilers import compiling
from sandbox.kit.compilers.arguments import exported

KERNEL = '''
from sandbox.kit import cpp

HELPER = r"""
static float twice(float x) {
    return 2 * x;
}
"""

def build():
    return cpp.compile(HELPER + r"""
        extern "C" void scale(const float* x, float* y, long n) {
            for (long i = 0; i < n; ++i)
                y[i] = twice(x[i]) MISTAKE
        }
    """)
'''


@pytest.fixture
def kernel_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PKB_KERNEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _kernel(folder: Path, mistake: str, text: str = KERNEL) -> tuple[Path, dict]:
    path = folder / "kernel.py"
    path.write_text(text.replace("MISTAKE", mistake))
    names: dict = {"__name__": "kernel"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return path, names


def _line_of(path: Path, text: str) -> int:
    return next(n for n, line in enumerate(path.read_text().splitlines(), 1) if text in line)


def test_tensors_and_numbers_are_passed_by_the_signature(kernel_cache):
    lib = cpp.compile(r"""
        extern "C" double mix(const double* x, int64_t n, float factor, bool negate, uint8_t* seen) {
            double sum = 0;
            for (int64_t i = 0; i < n; ++i) sum += x[i] * factor;
            *seen = 200;
            return negate ? -sum : sum;
        }
        extern "C" u64 largest(u64 x) { return x; }
    """)
    x, seen = torch.arange(4, dtype=torch.float64), torch.zeros(1, dtype=torch.uint8)
    assert lib.mix(x, 4, 0.5, True, seen) == -3.0
    assert lib.mix(x.data_ptr(), 4, 2, False, seen) == 12.0
    assert seen.item() == 200
    assert lib.largest(2**64 - 1) == 2**64 - 1


TAKES = r"""
    struct Point { float x; };
    extern "C" void take(const bf16* x, int n, float f, u32 epoch) {}
    extern "C" void raw(const void* x, u16* bits) {}
"""
X = torch.zeros(4, dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def takes(tmp_path_factory):
    """`TAKES`, compiled once for the tests of its calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PKB_KERNEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return cpp.compile(TAKES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((X, 4, 1.0), "take takes 4 arguments, got 3"), ((X, 4, 1.0, -1), r"argument 4 \(epoch\) of take .* got -1")],
)
def test_arguments_that_do_not_fit_are_refused(takes, arguments, message):
    with pytest.raises(errors.ArgumentError, match=message):
        takes.take(*arguments)


def test_calls_are_told_to_who_watches(kernel_cache, monkeypatch):
    seen = []
    monkeypatch.setattr(cpp, "watch", lambda *told: seen.append(told))
    lib = cpp.compile('extern "C" int twice(int x) { return 2 * x; }')
    before = time.time_ns()
    assert lib.twice(4) == 8
    ((name, begin, end, waits),) = seen
    assert (name, waits) == ("twice", [])
    assert before <= begin <= end <= time.time_ns()


def test_a_list_of_tensors_is_passed_as_pointers(kernel_cache):
    lib = cpp.compile(r"""
        extern "C" float sum(const float* const* parts, int count) {
            float total = 0;
            for (int i = 0; i < count; ++i) total += parts[i][0];
            return total;
        }
    """)
    assert lib.sum([torch.ones(1), torch.full((1,), 2.5)], 2) == 3.5
    with pytest.raises(errors.ArgumentError, match="list of tensors"):
        lib.sum(torch.ones(1), 1)


def test_signatures_are_read_as_written():
    functions = exported(
        textwrap.dedent(r"""
        // extern "C" void commented(int x) {}
        extern "C" __global__ void __launch_bounds__(256, 2)
        kernel(const Px px, const __nv_bfloat16* __restrict__ x, unsigned long long n, unsigned flags,
               float *y, const int counts[], __grid_constant__ const float f) {
        }
        static void inner(int x) {}
        extern "C" inline const int nothing(void) { }
        """)
    )
    assert list(functions) == ["kernel", "nothing"]
    px, x, n, flags, y, counts, f = functions["kernel"].parameters
    assert px.is_px
    assert (x.name, x.dtype, x.pointers) == ("x", "bfloat16", 1)
    assert (n.name, n.scalar.bytes, n.scalar.low) == ("n", 8, 0)
    assert (flags.name, flags.base) == ("flags", "unsigned")
    assert (y.name, y.dtype) == ("y", "float32")
    assert (counts.name, counts.dtype, counts.pointers) == ("counts", "int32", 1)
    assert (f.name, f.base) == ("f", "float")
    assert (functions["nothing"].returns, functions["nothing"].parameters) == ("int", ())
    assert [function.kernel for function in functions.values()] == [True, False]


def test_a_parameter_that_cannot_be_passed_is_named(kernel_cache):
    with pytest.raises(errors.CompileError, match="parameter `Point p` of f has a type"):
        cpp.compile('struct Point { float x; };\nextern "C" void f(Point p) {}')
    with pytest.raises(errors.CompileError, match="return void or an arithmetic type"):
        cpp.compile('extern "C" float* f(float* x) { return x; }')
    with pytest.raises(errors.CompileError, match="nothing to call"):
        cpp.compile("void f() {}")


def test_compile_error_carries_line_of_kernel_file(kernel_cache, tmp_path):
    path, names = _kernel(tmp_path, "+ nonsense;")
    with pytest.raises(errors.CompileError) as caught:
        names["build"]()
    assert caught.value.line == _line_of(path, "nonsense")
    assert caught.value.message.startswith(f"kernel.py:{caught.value.line}: ")
    assert "nonsense" in caught.value.message
    assert str(tmp_path) not in caught.value.text


def test_lines_are_found_in_f_strings_and_changed(kernel_cache, tmp_path):
    text = '''
from sandbox.kit import cpp
N = 4
def build():
    return cpp.compile(f"""\\
extern "C" int first() {{
    return {N};
}}
extern "C" int second() {{
    return MISTAKE;
}}
""")
'''
    path, names = _kernel(tmp_path, "unknown", text)
    with pytest.raises(errors.CompileError) as caught:
        names["build"]()
    assert caught.value.line == _line_of(path, "return unknown")
    assert _kernel(tmp_path, "5", text)[1]["build"]().second() == 5


def test_a_missing_function_lists_those_there_are(takes):
    with pytest.raises(AttributeError, match="has: take, raw"):
        takes.tale()


def test_c_exceptions_become_python_errors(kernel_cache):
    lib = cpp.compile(r"""
        #include <stdexcept>
        extern "C" void fail() { throw std::runtime_error("no such expert"); }
        extern "C" int fail_too() { throw 3; }
    """)
    with pytest.raises(errors.KernelError, match="fail threw: no such expert"):
        lib.fail()
    with pytest.raises(errors.KernelError, match="fail_too threw: an exception"):
        lib.fail_too()


def test_an_undefined_symbol_is_a_compile_error(kernel_cache):
    with pytest.raises(errors.CompileError, match="undefined symbol"):
        cpp.compile('extern "C" void missing();\nextern "C" void f() { missing(); }')


def test_without_a_compiler_it_says_what_to_install(kernel_cache, monkeypatch):
    from sandbox.kit.compilers import gcc

    monkeypatch.setenv("CXX", "no-such-compiler")
    for cached in (gcc.compiler, gcc.fingerprint):
        cached.cache_clear()
    try:
        with pytest.raises(errors.CompileError, match="apt install g"):
            cpp.compile(TAKES)
    finally:
        monkeypatch.undo()
        for cached in (gcc.compiler, gcc.fingerprint):
            cached.cache_clear()


def test_a_source_is_compiled_once(kernel_cache, monkeypatch):
    phases: list[str] = []
    monkeypatch.setattr(compiling, "on_compile_start", lambda: phases.append("start"))
    monkeypatch.setattr(compiling, "on_compile_end", lambda: phases.append("end"))
    first = cpp.compile(TAKES)
    written = first.path.stat().st_mtime_ns
    assert cpp.compile(TAKES).path == first.path
    assert first.path.stat().st_mtime_ns == written
    assert first.path.parent == kernel_cache
    assert phases == ["start", "end"]
    assert cpp.compile(TAKES, flags=["-DX"]).path != first.path


def test_cache_that_cannot_be_made_is_not_needed(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PKB_KERNEL_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert tmp_path in cpp.compile(TAKES).path.parents


def test_sixteen_bit_floats_convert_as_torch_does(kernel_cache):
    lib = cpp.compile(r"""
        template <class T> static void there(const float* x, T* y, long n) {
            for (long i = 0; i < n; ++i) y[i] = from_float<T>(x[i]);
        }
        template <class T> static void back(const T* x, float* y, long n) {
            for (long i = 0; i < n; ++i) y[i] = to_float(x[i]);
        }
        extern "C" void to_bf16(const float* x, bf16* y, long n) { there(x, y, n); }
        extern "C" void to_f16(const float* x, f16* y, long n) { there(x, y, n); }
        extern "C" void of_bf16(const bf16* x, float* y, long n) { back(x, y, n); }
        extern "C" void of_f16(const f16* x, float* y, long n) { back(x, y, n); }
    """)
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float16, "f16")):
        small, wide = every.view(dtype), torch.empty(2**16)
        getattr(lib, f"of_{name}")(small, wide, 2**16)
        assert torch.equal(wide.nan_to_num(7.5), small.float().nan_to_num(7.5))
        assert torch.equal(wide.isnan(), small.isnan())
        # All finite values, the midpoints between neighbours, and the next floats on both sides of these.
        finite = small.float()[small.isfinite()].sort().values
        middle = (finite[1:] + finite[:-1]) / 2
        around = [finite, middle, middle.nextafter(torch.tensor(9e9)), middle.nextafter(torch.tensor(-9e9))]
        x = torch.cat([*around, torch.tensor([float("inf"), -float("inf"), 65519.9, 65520.0, 1e30, 1e-30])])
        y = torch.empty(x.shape, dtype=dtype)
        getattr(lib, f"to_{name}")(x, y, x.numel())
        assert torch.equal(y, x.to(dtype))
        assert torch.equal(y.signbit(), x.signbit())
        getattr(lib, f"to_{name}")(torch.tensor([float("nan")]), y, 1)
        assert y[0].isnan()


BARRIERS = r"""
extern "C" void barrier(const Px& px, u32 slot, u32 epoch) { px_barrier(px, slot, epoch); }
extern "C" void tell(Px px, int peer, u32 slot, u32 value) { px_signal(px, peer, slot, value); }
extern "C" void hear(const Px px, int peer, u32 slot, u32 value) { px_wait(px, peer, slot, value); }
extern "C" long read(const Px& px, long* mine, int peer) { return *px_at(px, peer, mine); }
"""


def meet_often(rank: int, world: int) -> None:
    lib = cpp.compile(BARRIERS)
    mine = symm.empty((1,), torch.int64)
    for turn in range(200):
        mine.fill_(turn * 10 + rank)
        epoch = symm.next_epoch()
        lib.barrier(symm.px, 5, epoch)
        assert [lib.read(symm.px, mine, peer) for peer in range(world)] == [turn * 10 + p for p in range(world)]
        lib.barrier(symm.px, 6, epoch)
    right, left = (rank + 1) % world, (rank - 1) % world
    lib.tell(symm.px, right, 1000, 44)
    lib.hear(symm.px, left, 1000, 44)
    symm.wait(left, 1000, 44)  # Python and C++ use the same signal pads


@pytest.mark.parametrize("world", [1, 3])
def test_barriers_in_cpp(worlds, world):
    worlds.run(meet_often, world)


def meet_in_teams(rank: int, world: int) -> None:
    lib = cpp.compile(BARRIERS)
    team = symm.sub([0, 2] if rank % 2 == 0 else [1, 3])
    mine = team.empty((1,), torch.int64)
    mine.fill_(rank)
    lib.barrier(team.px, 0, team.next_epoch())
    assert [lib.read(team.px, mine, peer) for peer in range(2)] == list(team.ranks)


def test_teams_in_cpp(worlds):
    worlds.run(meet_in_teams, 4)


def wait_in_vain(rank: int, world: int) -> str:
    lib = cpp.compile(BARRIERS, flags=["-DPX_TIMEOUT_MS=100"])
    symm.barrier()
    said = ""
    for present in (1, 0):  # one after the other: rank 0 finds that rank 1 has arrived, however slow the machine is
        if rank == present:
            with pytest.raises(errors.KernelError, match="used slot 1008"):
                lib.barrier(symm.px, 1008, 1)
            team = symm.sub([rank, 2])
            with pytest.raises(errors.BarrierTimeout, match="hear waited in vain for rank 2"):
                lib.hear(team.px, team.ranks.index(2), 9, 1)
            with pytest.raises(errors.BarrierTimeout) as caught:
                lib.barrier(symm.px, 7, symm.next_epoch())
            assert caught.value.missing == ((2,) if rank == 0 else (0, 2))
            said = str(caught.value)
        dist.barrier()
    return said


def test_barrier_in_cpp_times_out_instead_of_hanging(worlds):
    text = worlds.run(wait_in_vain, 3)[0]
    assert text.startswith("barrier waited in vain for rank 2 (slot 7, value 1)")


def compile_together(rank: int, world: int, folder: str) -> tuple[int, str]:
    calls: list[float] = []
    compiling.on_compile_start = lambda: calls.append(time.monotonic())
    lib = cpp.compile(BARRIERS + f"// {folder}\n")
    symm.barrier()
    return len(calls), str(lib.path)


def test_a_world_compiles_once(worlds, tmp_path):
    results = worlds.run(compile_together, 4, str(tmp_path), PKB_KERNEL_CACHE=str(tmp_path))
    assert len({path for _, path in results}) == 1
    assert len([path for path in tmp_path.glob("*.so") if path.name == Path(results[0][1]).name]) == 1


def fail_together(rank: int, world: int) -> tuple[str, int | None]:
    symm.barrier()
    with pytest.raises(errors.CompileError) as caught:
        cpp.compile(BARRIERS + 'extern "C" void broken() { return oops; }')
    return caught.value.message, caught.value.line


def test_every_rank_gets_the_compile_error(worlds):
    results = worlds.run(fail_together, 4)
    assert all(report == results[0] for report in results)
    assert "oops" in results[0][0]
