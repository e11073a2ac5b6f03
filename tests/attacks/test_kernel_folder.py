"""Kernels of several files in the jail: compilers find the files, and no kernel can change them or what was compiled."""

from pathlib import Path

import pytest

from benchmarks.attacks.attack_bait import Bait, printed
from benchmarks.attacks.attack_suite import read_kernel
from sandbox.protocol.events import Refused
from sandbox.protocol.verdict import Verdict

KERNEL = """
from gather import parts_of
from .ops.sum import total


def solution(tensor):
    return total(parts_of(tensor))
"""
FILES = {
    "gather.py": b"""
import torch
import torch.distributed as dist


def parts_of(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return parts
""",
    "ops/sum.py": b"""
import torch

from sandbox.kit import cpp

lib = cpp.compile("sum.cpp")


def total(parts):
    total = parts[0].float()
    for part in parts[1:]:
        out = torch.empty_like(total)
        lib.add(total, part.float(), out, out.numel())
        total = out
    return total.to(parts[0].dtype)
""",
    "ops/sum.cpp": b"""
#include "plus.h"
extern "C" void add(const float* x, const float* y, float* z, long n) {
    for (long i = 0; i < n; ++i) z[i] = plus(x[i], y[i]);
}
""",
    "ops/plus.h": b"inline float plus(float a, float b) { return a + b; }\n",
}
CHANGES = (
    """
import os, pathlib, subprocess
here = pathlib.Path(__file__).parent
tries = {
    "write": lambda: (here / "gather.py").write_text(""),
    "new": lambda: (here / "new.py").write_text(""),
    "remove": lambda: (here / "gather.py").unlink(),
    "rename": lambda: (here / "gather.py").rename(here / "other.py"),
    "chmod": lambda: (here / "gather.py").chmod(0o777),
    "folder": lambda: here.chmod(0o777),
    "link": lambda: (here / "link").symlink_to("/etc/passwd"),
    "replace": lambda: here.rename("/tmp/elsewhere"),
    "remount": lambda: subprocess.run(["mount", "-o", "remount,rw", here], check=True, stderr=subprocess.DEVNULL),
}
for name, work in tries.items():
    try:
        work()
    except (OSError, subprocess.CalledProcessError):
        continue
    raise SystemExit(f"{name}: changed its own files")
"""
    + KERNEL
)
RELOADS = """
import importlib.util, tempfile
import gather
from .ops.sum import total

calls = 0


def other(text):
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(text)
        file.flush()
        importlib.util.spec_from_file_location("gather", file.name).loader.exec_module(gather)


def solution(tensor):
    global calls
    calls += 1
    if calls == 4:
        other(TEXT)
    return total(gather.parts_of(tensor))
"""
"""Runs another file in a module that was loaded, in the first call after the checked ones."""
SEES = (
    """
import os, pathlib
here = pathlib.Path(__file__).parent
worlds = sorted(path.name for path in pathlib.Path("/tmp").glob("pkb-arena-*"))
print("worlds", len(worlds), "folders", sorted(path.name for path in here.parent.iterdir()))
print("files", sorted(str(path.relative_to(here)) for path in here.rglob("*") if path.is_file()))
"""
    + KERNEL
)


@pytest.mark.slow
def test_folder_passes_and_its_compiled_code_is_kept(jail, referee):
    setting = referee.setting("allreduce")
    first = referee.judge(setting, KERNEL, rounds=0, files=FILES)
    assert (first.verdict, first.labels) == (Verdict.PASS, [])
    assert referee.judge(setting, KERNEL, rounds=0, files=FILES).seconds.compile == 0
    other = FILES | {"ops/plus.h": b"inline float plus(float a, float b) { return a - b; }\n"}
    wrong = referee.judge(setting, KERNEL, rounds=0, files=other)  # a header is part of the kernel
    assert wrong.verdict is Verdict.WRONG_RESULT


@pytest.mark.slow
def test_a_kernel_cannot_change_its_files(jail, referee):
    result = referee.judge(referee.setting("allreduce"), CHANGES, rounds=0, files=FILES)
    assert result.verdict is Verdict.PASS, result.failure


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        pytest.param("def parts_of(tensor):\n    return [tensor, tensor]\n", Verdict.WRONG_RESULT, id="another"),
        pytest.param(FILES["gather.py"].decode(), Verdict.PASS, marks=pytest.mark.further, id="the same"),
    ],
)
def test_a_module_that_changes_after_load(jail, referee, text, verdict):
    setting = referee.setting("allreduce")
    changing = referee.judge(setting, RELOADS.replace("TEXT", repr(text)), rounds=1, files=FILES)
    assert changing.verdict is verdict, changing.failure
    assert referee.judge(setting, KERNEL, rounds=0, files=FILES).verdict is Verdict.PASS


@pytest.mark.slow
def test_kernel_sees_its_own_files_and_no_others(jail, referee):
    result = referee.judge(referee.setting("allreduce"), SEES, rounds=0, files=FILES)
    assert result.verdict is Verdict.PASS, result.failure
    text = printed(referee.events)
    assert "worlds 1 folders ['compiled', 'kernel']" in text
    assert "files ['gather.py', 'kernel.py', 'ops/plus.h', 'ops/sum.cpp', 'ops/sum.py']" in text


@pytest.mark.slow
def test_an_error_is_shown_in_its_own_file(referee):
    setting = referee.setting("allreduce")
    files = FILES | {"gather.py": b"def parts_of(tensor):\n    raise ValueError('no')\n"}
    failure = referee.judge(setting, KERNEL, rounds=0, files=files).failure
    assert failure.line == 7  # of kernel.py
    assert 'File "gather.py", line 2, in parts_of' in failure.text
    header = b"inline float plus(float a, float b) { return sum; }\n"
    broken = referee.judge(setting, KERNEL, rounds=0, files=FILES | {"ops/plus.h": header})
    assert broken.verdict is Verdict.COMPILE_ERROR
    assert "plus.h:" in broken.failure.message
    assert "pkb-arena-world" not in broken.failure.text


@pytest.mark.parametrize("name", ["../outside.py", "/tmp/outside.py", "ops/../../outside.py"])
def test_a_name_that_leads_out_is_refused(referee, name):
    referee.start(referee.setting("allreduce"), KERNEL, files={name: b""})
    assert "cannot name a file of a kernel" in referee.until(Refused).message


SUM = read_kernel(Path(__file__).parent / "kernels" / "honest_cpp.py").source
PLANTS = (
    SUM
    + """

# Right itself, and leaves another binary behind under the name of the honest one.
import os, shutil
other = cpp.compile(r'''
extern "C" void add(const float* x, const float* y, float* z, long n) {
    for (long i = 0; i < n; ++i) z[i] = 0;
}
''')
dist.barrier()
if dist.get_rank() == 0:
    name = os.path.join(f"/tmp/pkb-kernels-{os.getuid()}", lib.path.name)
    shutil.copyfile(other.path, name + ".new")
    os.replace(name + ".new", name)
dist.barrier()
"""
)


@pytest.mark.slow
def test_a_planted_binary_is_loaded_by_nobody_else(jail, referee, bait: Bait):
    setting = referee.setting("allreduce")
    planted = referee.judge(setting, PLANTS, rounds=0)
    assert planted.verdict is Verdict.PASS
    cache = Path(bait.environment["PKB_KERNEL_CACHE"])
    kept = [file.read_bytes() for file in cache.rglob("*.so")]
    assert len(set(kept)) < len(kept)  # two names hold the same binary: the planted one was kept
    first = referee.judge(setting, SUM, rounds=0)
    assert first.verdict is Verdict.PASS
    assert first.seconds.compile > 0
    again = referee.judge(setting, SUM, rounds=0)
    assert again.verdict is Verdict.PASS
    assert again.seconds.compile == 0  # the cache has the binary of this source
