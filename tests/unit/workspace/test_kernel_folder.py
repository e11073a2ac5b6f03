"""Kernels of several files: what a folder may contain, and that revisions have all its files."""

import hashlib
import os
from pathlib import Path

import pytest

from arena.errors import UsageError
from arena.workspace.kernel_folder import listed_name, main_file, other_files, shown_text, write_folder
from arena.workspace.kernels import Workspace, content_hash, read_kernel
from sandbox.protocol.events import Contender
from sandbox.protocol.kernel_files import MOST_BYTES, MOST_FILES, Kernel, fault_in, kernel_hash


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A kernel with a module and a CUDA file, and files that are not part of a kernel."""
    folder = tmp_path / "two_shot"
    for name in ("kernel.py", "ops/reduce.cu", "helper.py", ".git/config", "__pycache__/helper.pyc", "helper.py~"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name}\n")
    return folder


def test_folder_is_read_without_litter(folder: Path) -> None:
    kernel = read_kernel(folder)
    assert kernel.text == "# kernel.py\n"
    assert kernel.files == {"helper.py": b"# helper.py\n", "ops/reduce.cu": b"# ops/reduce.cu\n"}
    assert kernel.name == "two_shot/kernel.py"
    assert main_file(folder) == folder / "kernel.py"
    assert (listed_name(folder), listed_name(main_file(folder))) == ("two_shot/", "kernel")
    shown = Kernel("main", {"z.h": b"z", "a.bin": b"\xff"})
    assert shown_text(shown) == "main\n\n==> a.bin <==\n(1 bytes, no text)\n\n==> z.h <==\nz"


def test_hash_of_one_file_is_its_text_hash(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text("text")
    assert read_kernel(tmp_path).sha256 == read_kernel(tmp_path / "kernel.py").sha256 == content_hash("text")
    assert content_hash("text") == hashlib.sha256(b"text").hexdigest()


def test_the_hash_covers_names_and_contents() -> None:
    kernels = [("a", {"b": b"c"}), ("a", {"c": b"b"}), ("a", {"b": b"", "d": b"c"}), ("ab", {"": b"c"}), ("a", {})]
    assert len({kernel_hash(*kernel) for kernel in kernels}) == len(kernels)
    assert kernel_hash("a", {"b": b"", "c": b""}) == kernel_hash("a", {"c": b"", "b": b""})


def test_link_out_of_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "inside.h").symlink_to(folder / "ops/reduce.cu")
    assert read_kernel(folder).files["inside.h"] == b"# ops/reduce.cu\n"
    (tmp_path / "secret").write_text("key")
    (folder / "outside.h").symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match=r"outside\.h is a link out of the kernel's folder"):
        read_kernel(folder)
    (folder / "outside.h").unlink()
    (folder / "more").symlink_to(tmp_path)
    with pytest.raises(UsageError, match=r"^\S+more is a link to a folder"):
        read_kernel(folder)
    (folder / "more").unlink()
    (folder / "kernel.py").unlink()
    (folder / "kernel.py").symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match=r"kernel\.py is a link out of the kernel's folder"):
        read_kernel(folder)


def test_file_named_baseline_is_not_the_baseline(tmp_path: Path) -> None:
    (tmp_path / "baseline").touch()
    found = read_kernel(tmp_path / "baseline")
    assert not Contender(kernel_name=found.name, source=found.text).is_baseline


def test_limits(folder: Path) -> None:
    room = MOST_BYTES - sum(map(len, other_files(folder).values()))
    (folder / "z.bin").write_bytes(bytes(room))
    assert len(other_files(folder)["z.bin"]) == room
    with pytest.raises(UsageError, match=r"two_shot: the kernel has more than 4 MiB"):  # with kernel.py
        read_kernel(folder)
    (folder / "z.bin").write_bytes(bytes(room + 1))
    with pytest.raises(UsageError, match=r"two_shot has more than 4 MiB"):
        read_kernel(folder)
    (folder / "z.bin").unlink()
    for number in range(MOST_FILES - 3):  # and the folder's own three
        (folder / f"part{number}.h").touch()
    assert list(found := read_kernel(folder).files) == sorted(found)
    assert len(found) == MOST_FILES - 1
    (folder / "one_more.h").touch()
    with pytest.raises(UsageError, match="two_shot has more than 200 files"):
        read_kernel(folder)


@pytest.mark.parametrize(
    ("name", "words"), [("pipe", "is no plain file"), ("naïve.py", "its name"), ("a\nb.py", "its name")]
)
def test_what_no_kernel_may_have_is_named(folder: Path, name: str, words: str) -> None:
    if name == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).touch()
    with pytest.raises(UsageError, match=words):
        read_kernel(folder)


def test_folder_without_kernel_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no kernel\.py"):
        read_kernel(tmp_path)


@pytest.mark.parametrize(
    "files",
    [
        {"../outside.py": b""},
        {"/etc/passwd": b""},
        {"a/../../b.py": b""},
        {"kernel.py": b""},
        {"kernel.py/a.py": b""},
        {"a": b"", "a/b.py": b""},
        {".hidden": b""},
        {"-flag": b""},
        {"": b""},
        {"a.py": bytes(MOST_BYTES)},
        {f"{number}.py": b"" for number in range(MOST_FILES)},
    ],
)
def test_files_from_elsewhere_are_refused(files: dict[str, bytes]) -> None:
    assert fault_in(Kernel("text", files))


def test_revisions_have_all_files_and_restore(folder: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    before = read_kernel(folder)
    (folder / "helper.py").write_text("# changed\n")
    sha256 = workspace.save(folder, "# typed\n")
    assert read_kernel(folder).sha256 == sha256 != before.sha256
    assert getattr(workspace.kernel(sha256), "source", "") == "# typed\n"
    assert workspace.keep_revision(before.text, before.files) == before.sha256
    assert workspace.kernel(before.sha256) == before.kernel
    restored = workspace.put_beside(folder, before.kernel)
    assert read_kernel(restored).kernel == before.kernel
    assert set(workspace.variants(folder)) == {folder, restored}
    (restored / "helper.py").write_text("# mine\n")
    assert workspace.put_beside(folder, before.kernel) == restored
    assert (restored / "helper.py").read_text() == "# mine\n"


def test_a_folder_is_written_whole_or_not(tmp_path: Path) -> None:
    kernel = Kernel("text", {"sum.h": b"", "ops/sum.cu": b""})
    for name, mode, access in (("mine", 0o600, 0o700), ("shared", 0o644, 0o755), ("kept", 0o400, 0o700)):
        write_folder(tmp_path / name, kernel, mode)
        write_folder(tmp_path / name, kernel, mode)  # another process has written it
        assert read_kernel(tmp_path / name).kernel == kernel
        found = [path.stat().st_mode & 0o777 for path in (tmp_path / name).rglob("*")]
        assert sorted(found) == sorted([mode] * 3 + [access])
        assert (tmp_path / name).stat().st_mode & 0o777 == access
    write_folder(tmp_path / "deep" / "er", Kernel("text", {"a/b/c.h": b""}))
    made = [tmp_path / "deep", *(tmp_path / "deep").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in made if path.is_dir()} == {0o700}
    (tmp_path / "taken").write_text("a file")
    for place in ("taken", "taken/below"):
        with pytest.raises(OSError, match="Not a directory"):
            write_folder(tmp_path / place, kernel)
    assert sorted(os.listdir(tmp_path)) == ["deep", "kept", "mine", "shared", "taken"]


def test_a_damaged_revision_is_not_handed_out(folder: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    kernel = read_kernel(folder)
    workspace.keep_revision(kernel.text, kernel.files)
    file = next(workspace.root.glob(f".revisions/*/{kernel.sha256}/helper.py"))
    file.chmod(0o600)
    file.write_text("tampered")
    assert workspace.kernel(kernel.sha256) is None


def test_a_folder_is_renamed_with_its_draft(folder: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    workspace.save_draft(folder, "typed")
    workspace.save_draft(folder / "ops/reduce.cu", "typed, too")
    new = workspace.rename(folder, "one-shot")
    assert (new / "ops/reduce.cu").is_file()
    assert (workspace.draft(new), workspace.draft(new / "ops/reduce.cu")) == ("typed", "typed, too")
    with pytest.raises(UsageError, match="there is a kernel one-shot already"):
        workspace.variant(new, "one-shot")
    workspace.move_file(new, "helper.py", "more/and/help.py")
    workspace.move_file(new, "more/and/help.py", "more/help.py")
    for _ in range(2):  # another program may have deleted it
        workspace.move_file(new, "ops/reduce.cu", "")
    with pytest.raises(UsageError, match=r"has a file kernel\.py already"):
        workspace.move_file(new, "more/help.py", "kernel.py")
    workspace.save_draft(new / "deep/down/new.py", "typed")
    for name in ("new.py", "newer.py"):
        workspace.save(new, "text", f"deep/down/{name}")
    files = {"more/help.py": b"# helper.py\n", "deep/down/new.py": b"text", "deep/down/newer.py": b"text"}
    assert read_kernel(new).files == files
    assert workspace.draft(new / "ops/reduce.cu") is workspace.draft(new / "deep/down/new.py") is None
