"""Kernel files: whole or not at all, every text kept, one app at a time."""

import getpass
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer
from unittest.mock import Mock

import pytest

from arena.errors import FolderUnwritable, KernelsLocked, UsageError
from arena.paths import make_folder, write_atomically
from arena.workspace.kernel_folder import plain, with_line_ends
from arena.workspace.kernels import OPEN, KernelLocks, Workspace, content_hash, read_kernel
from problems.specification import Problem
from sandbox.protocol.kernel_files import Kernel


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


def test_a_kernel_may_name_its_encoding(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_bytes("# -*- coding: latin-1 -*-\n# Grüße\n".encode("latin-1"))
    assert read_kernel(path).text.endswith("# Grüße\n")
    for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
        path.write_bytes("\ufeff# Grüße\n".encode(encoding))
        assert read_kernel(path).text == "# Grüße\n"
    for line in ("", "# -*- coding: klingon -*-", "# -*- coding: ascii -*-", "# -*- coding: rot13 -*-"):
        path.write_bytes(f"{line}\n# Grüße\n".encode("latin-1"))
        with pytest.raises(UsageError, match="not UTF-8 text"):
            read_kernel(path)


def test_pipe_is_read_unless_nobody_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kernel.py"
    os.mkfifo(path)
    monkeypatch.setattr("arena.workspace.kernels.PIPE_S", 0.1)
    with pytest.raises(UsageError, match=r"^nothing was written"):
        read_kernel(path)
    with pytest.raises(OSError, match="No such device"):  # nobody reads it any more
        os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    writing = os.open(path, os.O_RDWR)
    os.write(writing, b"x = 1\n")
    Timer(0.1, lambda: (os.write(writing, b"y = 2\n"), os.close(writing))).start()
    assert read_kernel(path).text == "x = 1\ny = 2\n"


def test_saving_keeps_every_text_that_it_replaces(workspace: Workspace, problem: Problem) -> None:
    path, before = workspace.kernel_path(problem), time.time()
    workspace.save(path, "mine")
    path.write_text("another program's")
    workspace.save_draft(path, "typed elsewhere")
    workspace.save(path, "mine again")
    assert workspace.draft(path) is None
    for text in ("mine", "another program's", "typed elsewhere", "mine again"):
        assert workspace.kernel(content_hash(text)) == Kernel(text)
        assert before <= workspace.kept_of(path)[content_hash(text)] <= time.time()
    (kept,) = workspace.root.glob(".revisions/*.kept")
    kept.write_bytes(kept.read_bytes() + b"17.5 \xff")  # a torn line
    assert len(workspace.kept_of(path)) == 4
    stored = {each: each.stat() for each in workspace.root.glob(".revisions/*/*.py")}
    assert {each.st_mode & 0o777 for each in stored.values()} == {0o400}
    workspace.keep_revision("mine")
    assert {each: each.stat() for each in stored} == stored  # equal kernels are stored once


def test_draft_that_equals_its_file_is_none(workspace: Workspace, problem: Problem) -> None:
    path, before = workspace.create(problem, "one"), time.time() - 1
    assert (workspace.draft(path), workspace.draft_written(path)) == (None, 0.0)
    for text, found in (("two", "two"), ("one", None)):
        workspace.save_draft(path, text)
        assert workspace.draft(path) == found
    assert before <= workspace.draft_written(path) <= time.time()
    assert {each.name for each in workspace.root.iterdir()} == {".drafts", ".revisions", problem.stem}


def test_a_copy_has_all_files(workspace: Workspace, problem: Problem) -> None:
    path = workspace.create(problem, "one")
    assert workspace.copy(path, Kernel("typed"), "other") == path.with_name("other.py")
    folder = workspace.copy(path, Kernel("typed"), "more/")
    assert (folder, read_kernel(folder).text) == (path.with_name("more"), "typed")
    two = Kernel("again", {"sum.cu": b"// sum"})
    assert read_kernel(workspace.copy(folder, two, "twin")).kernel == two
    assert workspace.kernel(two.sha256) == two
    for name in ("other", "more/", "a b", ""):
        with pytest.raises(UsageError):
            workspace.copy(path, Kernel("x"), name)


def test_kernel_open_last_comes_first(workspace: Workspace, problem: Problem, tmp_path: Path) -> None:
    first = workspace.create(problem, "one")
    other = workspace.copy(first, Kernel("two"), "other")
    workspace.note_open(problem, first)
    assert not first.with_name(OPEN).exists()
    found = [workspace.last_open(problem)]
    for path in (other, tmp_path / "elsewhere.py"):
        workspace.note_open(problem, path)
        found.append(workspace.last_open(problem))
    assert not (tmp_path / OPEN).exists()
    renamed = workspace.rename(other, "third")  # it has no draft
    found.append(workspace.last_open(problem))
    workspace.note_open(problem, renamed)
    assert [*found, workspace.last_open(problem)] == [first, other, other, first, renamed]


def test_no_player_name_leaves_the_workspace(workspace: Workspace, problem: Problem) -> None:
    for player in ("you", "model:gpt/5", "..", ".", "../../etc", "ü b", "x" * 200):
        path = workspace.kernel_path(problem, player).resolve()
        assert path.is_relative_to(workspace.root.resolve() / problem.stem)
        assert len(path.relative_to(workspace.root.resolve()).parts) == 3
    assert workspace.kernel_path(problem, "gpt-5.1").parent.name == "gpt-5.1"
    for player in ("", "x" * 201):
        with pytest.raises(UsageError):
            workspace.kernel_path(problem, player)


def test_failed_write_leaves_old_text_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("old")
    with pytest.raises(TypeError):
        write_atomically(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["kernel.py"]


def test_an_atomic_write_keeps_permissions_and_symbolic_links(tmp_path: Path) -> None:
    real, link = tmp_path / "real.py", tmp_path / "link.py"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no kernel file"), (b"\xfe\xfd", "UTF-8"), (b"x" * ((4 << 20) + 1), "MiB")],
    ids=["missing", "no UTF-8", "too large"],
)
def test_an_unreadable_kernel_is_a_usage_error(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "kernel.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        read_kernel(path)
    path.write_bytes(b"x" * (4 << 20))
    assert len(read_kernel(path).text) == 4 << 20


def test_what_cannot_be_read_gets_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").touch()
    places = {
        "gone.py": "pkb-arena new",
        "gone": "the words `baseline`",
        "a.py/b": "kernel's folder",
        "a.py": "permissions",
    }
    for place, advice in places.items():
        if advice == "permissions":
            monkeypatch.setattr("arena.workspace.kernels._open", Mock(side_effect=PermissionError(13, "Denied")))
        with pytest.raises(
            UsageError, match=f"^(there is no|/).* {'' if 'gone' in place else 'cannot be read'}"
        ) as caught:
            read_kernel(tmp_path / place)
        assert advice in caught.value.advice


def test_name_that_is_no_text_is_usage_error(tmp_path: Path) -> None:
    path = Path(os.fsdecode(bytes(tmp_path / "kernel") + b"\xff.py"))
    path.touch()
    with pytest.raises(UsageError, match="not UTF-8"):
        read_kernel(path)


def test_an_unwritable_workspace_is_named(tmp_path: Path, problem: Problem) -> None:
    (tmp_path / "workspace").write_text("a file")
    with pytest.raises(FolderUnwritable, match="workspace"):
        Workspace(tmp_path / "workspace").save(tmp_path / "workspace" / "a" / "kernel.py", "text")


def test_each_failed_write_names_its_folder(workspace: Workspace, problem: Problem) -> None:
    path = workspace.create(problem, "one")
    more = workspace.copy(path, Kernel("two", {"ops/sum.cu": b""}), "more")
    two = Kernel("three", {"sum.cu": b""})
    path.with_name(f"revision-{two.sha256[:8]}").symlink_to("/nowhere/at/all")
    new = content_hash("new")
    (workspace.root / ".revisions" / new[:2]).mkdir(exist_ok=True)
    (workspace.root / ".revisions" / new[:2] / f"{new}.py").symlink_to("/nowhere/at/all")
    workspace.save_draft(path, "typed")
    for blocked in (path.with_name(OPEN), *workspace.root.glob(".drafts/*.py"), workspace.root / ".locks" / "13"):
        blocked.unlink(missing_ok=True)
        blocked.mkdir(parents=True)
    for write in (
        lambda: workspace.note_open(problem, more),
        lambda: workspace.rename(path.with_name("gone.py"), "new"),
        lambda: workspace.move_file(more, "gone.cu", "new.cu"),
        lambda: workspace.save(more, "text", "ops"),
        lambda: workspace.put_beside(path, two),
        lambda: workspace.keep_revision("new"),
        lambda: workspace.save_draft(path, "typed"),
        lambda: KernelLocks(workspace.root).take("13"),
    ):
        with pytest.raises(FolderUnwritable):
            write()


HOLD = """
import sys
from pathlib import Path
from arena.workspace.kernels import KernelLocks
locks = KernelLocks(Path(sys.argv[1]))
locks.take("13_gemm_allreduce")
print("held", flush=True)
sys.stdin.read()
"""


def test_second_app_is_told_who_holds_the_problem(tmp_path: Path) -> None:
    note = make_folder(tmp_path / ".locks") / "13_gemm_allreduce"
    note.write_text("of an app that was killed, longer than the next one" * 9)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    locks = KernelLocks(tmp_path)
    try:
        assert holder.stdout.readline() == "held\n"
        locks.take("01_allreduce")
        assert note.with_name("01_allreduce").stat().st_mode & 0o777 == 0o600
        descriptors = os.listdir("/proc/self/fd")
        with pytest.raises(KernelsLocked) as caught:
            locks.take("13_gemm_allreduce")
        assert f"process {holder.pid}, {getpass.getuser()}, since" in caught.value.message
        note.write_text("no JSON")
        with pytest.raises(KernelsLocked, match="another pkb-arena edits the kernels of 13"):
            locks.take("13_gemm_allreduce")
        assert os.listdir("/proc/self/fd") == descriptors
    finally:
        holder.kill()
        holder.wait()
    locks.take("13_gemm_allreduce")  # a killed app leaves no stale lock


def test_screens_of_one_app_share_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = KernelLocks(tmp_path), KernelLocks(tmp_path)
    monkeypatch.setattr(os, "pwrite", Mock(side_effect=OSError))  # the disk is full
    mine.take("13")
    mine.take("13")
    mine.release("13")
    with pytest.raises(KernelsLocked):
        other.take("13")
    mine.release("13")
    other.take("13")


def test_saving_over_what_is_no_text_keeps_copy(workspace: Workspace, problem: Problem) -> None:
    path = workspace.kernel_path(problem)
    workspace.save(path, "mine")
    path.write_bytes(b"\xe9")
    workspace.save(path, "mine again")
    assert path.read_text() == "mine again"
    (copy,) = path.parent.glob("kernel.py.unreadable-*")
    assert copy.read_bytes() == b"\xe9"


@pytest.mark.parametrize("text", ["", "a", "a\n", "a\r\nb", "a\nb\r\nc\n", "\r\n\n", "a\x0cb\u2028c\n"])
def test_unchanged_text_keeps_its_line_ends(text: str) -> None:
    assert with_line_ends(plain(text), text) == text


def test_new_lines_get_the_usual_line_end() -> None:
    assert with_line_ends("a\nnew\nb\nc\n", "a\r\nb\nc\r\n") == "a\r\nnew\r\nb\nc\r\n"
    assert with_line_ends("b\nc", "a\r\nb\r\n") == "b\r\nc"
    assert with_line_ends("x\nnew\nz\n", "x\r\na\r\nb\nc\nz\n") == "x\r\nnew\r\nz\n"
    assert with_line_ends("x\nnew", "x\r\na\nb\r\nc") == "x\r\nnew"
    mixed = "x\n" * 200 + "x\r\n" * 201
    assert with_line_ends(f"new\n{plain(mixed)}end", mixed) == f"new\r\n{mixed}end"


def test_kernels_of_a_problem_have_names(workspace: Workspace, problem: Problem) -> None:
    path = workspace.create(problem, "mine")
    two_shot = workspace.variant(path, "two-shot")
    workspace.save(two_shot, "other")
    assert workspace.variants(two_shot) == [path, two_shot]
    workspace.save_draft(two_shot, "typed")
    best = workspace.rename(two_shot, "best")
    assert workspace.variants(path) == [path, best]
    assert workspace.draft(best) == "typed"
    for name in ("best", "", "../up", "a.b"):
        with pytest.raises(UsageError):
            workspace.variant(path, name)
