"""Stores the kernels of each problem and player, with all revisions and drafts.

<root>/<problem's stem>/<player>/kernel.py      the kernel; further kernels beside it have other names
<root>/<problem's stem>/<player>/two-shot/      a kernel of several files, with a kernel.py
<root>/.drafts/0123….py                         unsaved text of a kernel file
<root>/.revisions/ab/abcdef….py                 every revision of kernels of one file, by SHA-256
<root>/.revisions/ab/abcdef…/                   every revision of kernels of several files
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import re
import select
import shutil
import stat
import time
import tokenize
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import quote

from arena.errors import KernelsLocked, UsageError
from arena.paths import make_folder, user, write_atomically, writing
from arena.workspace.kernel_folder import ADVICE, is_kernel_folder, main_file, other_files, shown_name, write_folder
from sandbox.protocol.kernel_files import MAIN, Files, Kernel, fault_in, kernel_hash

if TYPE_CHECKING:
    from problems.specification import Problem

KERNEL_BYTES = 4 << 20
"""Maximum size of a kernel file. A larger file is refused."""
PIPE_S = 5.0
"""Longest wait until something is written into a named pipe."""

OPEN = ".open"
"""The file with the name of the kernel that was open last, beside the kernels."""


def content_hash(text: str) -> str:
    """Returns the SHA-256 of a kernel's text in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class KernelFile:
    """A kernel as it was read from a file, or from a folder with kernel.py."""

    path: Path
    """The file or the folder."""
    text: str
    """Text of the file, or of kernel.py in the folder."""
    sha256: str
    files: Files = field(default_factory=dict)
    """The other files of a folder."""
    name: str = "kernel.py"
    """The kernel's name in results."""

    @property
    def kernel(self) -> Kernel:
        """The texts of its files, without their location."""
        return Kernel(self.text, self.files)


def read_kernel(path: Path) -> KernelFile:
    """Reads a kernel. Accepts an empty file, which the judge rejects later.

    path: a Python file, or a folder with kernel.py and the other files of the kernel.

    Raises:
        UsageError: there is no such file, it cannot be read, its name or text is not UTF-8, or it has more than 4 MiB; or the
            folder has no kernel.py, or a file that a kernel may not have: see `other_files`.
    """
    try:
        os.fspath(path.absolute()).encode()
    except UnicodeEncodeError:
        raise UsageError(f"the name of {path} is not UTF-8 text", "rename it; journals hold names as text") from None
    files: Files = {}
    try:
        if path.is_dir():
            if not is_kernel_folder(path):
                raise UsageError(
                    f"{path} has no {MAIN}", f"name a Python file, or a folder whose {MAIN} has solution()"
                )
            files = other_files(path)
        with open(main_file(path), "rb", opener=_open) as file:
            text = kernel_text(file, str(path))
        if fault := fault_in(Kernel(text, files)):
            raise UsageError(f"{path}: {fault}", ADVICE)
    except FileNotFoundError:
        advice = f"`pkb-arena new PROBLEM -o {path}` writes a starter"
        if path.suffix != ".py":
            advice = "name a Python file, a folder with kernel.py, or one of the words `baseline` and `house`"
        raise UsageError(f"there is no kernel file {path}", advice) from None
    except OSError as error:
        advice = (
            "check its permissions"
            if isinstance(error, PermissionError)
            else "name a Python file, or a kernel's folder"
        )
        raise UsageError(f"{path} cannot be read: {error.strerror}", advice) from None
    return KernelFile(path, text, kernel_hash(text, files), files, shown_name(path))


def _open(path: str, flags: int) -> int:
    """Opens a file for reading. Raises UsageError for a named pipe into which nothing is written, and OSError."""
    file = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(file, True)
    if stat.S_ISFIFO(os.fstat(file).st_mode) and not select.select([file], [], [], PIPE_S)[0]:
        os.close(file)
        raise UsageError(f"nothing was written into the pipe {path} within {PIPE_S:.0f} s", "name a file")
    return file


def kernel_text(file: BinaryIO, name: str) -> str:
    """Reads a kernel from an open file and removes a byte order mark. name: the file's name in errors.

    Raises:
        UsageError: it is neither UTF-8 text nor in the encoding that it names (PEP 263), or is larger than 4 MiB: devices such
            as /dev/zero have no size.
    """
    data = file.read(KERNEL_BYTES + 1)
    if len(data) > KERNEL_BYTES:
        raise UsageError(f"{name} has more than 4 MiB", "a kernel has at most 4 MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        with suppress(SyntaxError, ValueError, LookupError):
            encoding = (
                "utf-16"
                if data[:2] in (BOM_UTF16_LE, BOM_UTF16_BE)
                else tokenize.detect_encoding(io.BytesIO(data).readline)[0]
            )
            return data.decode(encoding)
        advice = "save it as UTF-8, or name its encoding in the first line: # -*- coding: latin-1 -*-"
        raise UsageError(f"{name} is not UTF-8 text (byte {error.start})", advice) from None


class Workspace:
    """The kernel files below one folder. Whatever writes raises FolderUnwritable if that fails, and then changes no file."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def kernel_path(self, problem: Problem, player: str = "you") -> Path:
        """Returns the path of this player's kernel for the problem. The file may not exist."""
        return self.root / problem.stem / _folder_name(player) / "kernel.py"

    def last_open(self, problem: Problem) -> Path:
        """Returns the user's kernel of a problem that was open last; `kernel.py` if none was, or it is gone."""
        first = self.kernel_path(problem)
        with suppress(OSError, ValueError):
            name = (first.parent / OPEN).read_text(encoding="utf-8").strip()
            if (last := first.with_name(name)) in self.variants(first):
                return last
        return first

    def note_open(self, problem: Problem, path: Path) -> None:
        """Records which of the user's kernels is open. Does nothing for a file outside the workspace."""
        if path.parent == self.kernel_path(problem).parent and path != self.last_open(problem):
            with writing(path.parent):
                write_atomically(path.parent / OPEN, path.name.encode())

    def variants(self, path: Path) -> list[Path]:
        """Returns a kernel and the kernels beside it, files and folders, sorted by name, `kernel.py` first."""
        beside = {path, *path.parent.glob("*.py"), *(found.parent for found in path.parent.glob(f"[!.]*/{MAIN}"))}
        return sorted(beside, key=lambda each: (each.name != MAIN, each.name))

    def variant(self, path: Path, name: str) -> Path:
        """Returns the path for a new kernel beside `path`: a folder if `path` is a folder. name: without `.py`.

        Raises:
            UsageError: the name is not allowed, or there is a kernel of this name.
        """
        if not re.fullmatch(r"\w[\w-]{0,59}", name):
            raise UsageError(f"{name!r} cannot be a kernel's name", "use 1 to 60 letters, digits, - or _")
        new = path.with_name(name if path.is_dir() else f"{name}.py")
        if taken := next(
            (each for each in (path.with_name(name), path.with_name(f"{name}.py")) if each.exists()), None
        ):
            raise UsageError(f"there is a kernel {taken.name} already", "choose another name")
        return new

    def copy(self, path: Path, kernel: Kernel, name: str) -> Path:
        """Writes a kernel beside `path`, and returns its path. name: if it ends in /, a file is copied into a new folder.

        Raises as `variant`.
        """
        new = self.variant(path, name.removesuffix("/"))
        new = new.with_suffix("") if name.endswith("/") else new
        self._write_new(new, kernel)
        return new

    def rename(self, path: Path, name: str) -> Path:
        """Renames a kernel and the drafts of its files.

        Raises:
            UsageError: as `variant` and `other_files`.
        """
        new = self.variant(path, name)
        with writing(path.parent):
            files = other_files(path) if path.is_dir() else {}
            path.rename(new)
            for file in ("", *files):
                with suppress(FileNotFoundError):
                    self._draft_path(path / file).rename(self._draft_path(new / file))
        return new

    def move_file(self, path: Path, name: str, new: str) -> None:
        """Renames a file of a kernel's folder, or deletes it if the new name is empty; its draft is deleted.

        Raises:
            UsageError: there is a file of the new name.
        """
        with writing(path):
            if not new:
                (path / name).unlink(missing_ok=True)
            elif (path / new).exists():
                raise UsageError(f"{path.name} has a file {new} already", "choose another name")
            else:
                (path / new).parent.mkdir(parents=True, exist_ok=True)
                (path / name).rename(path / new)
        self.discard_draft(path / name)

    def create(self, problem: Problem, text: str, player: str = "you") -> Path:
        """Writes the first kernel file from a starter text. Does not change an existing file."""
        path = self.kernel_path(problem, player)
        if not path.exists():
            self.save(path, text)
        return path

    def save(self, path: Path, text: str, name: str = MAIN) -> str:
        """Writes a kernel file atomically. Keeps old file, draft and new text as revisions; deletes the draft.

        path: a kernel's file or folder. name: of the file in the folder.

        Returns:
            The SHA-256 of the kernel.

        Raises:
            UsageError: the other files of the folder are not those of a kernel.
        """
        make_folder(path.parent)
        file, drafted = (main_file(path), path) if name == MAIN else (path / name, path / name)
        with writing(path.parent):
            self.keep_file(path)  # another program may have changed it
            old = Kernel("", other_files(path) if path.is_dir() else {}) if name == MAIN else read_kernel(path).kernel
            if (draft := self.draft(drafted)) is not None:
                drawn = old.with_text(draft, name)
                self.keep_revision(drawn.source, drawn.files, of=path)  # the caller may not have loaded it
            new = old.with_text(text, name)
            sha256 = self.keep_revision(new.source, new.files, of=path)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, text.encode())
        self.discard_draft(drafted)
        return sha256

    # --- revisions -----------------------------------------------------------------------------------------

    def keep_revision(self, text: str, files: Files | None = None, of: Path | None = None) -> str:
        """Stores a kernel under its SHA-256 and returns the hash. Equal kernels are stored once.

        of: the kernel whose text it was. `kept_of` then lists it, even if it is never run.
        """
        kernel = Kernel(text, files or {})
        path = self._revision_path(kernel.sha256)
        place = path.with_suffix("") if kernel.files else path
        if not place.exists():
            make_folder(path.parent)
            with writing(path.parent):
                if kernel.files:
                    write_folder(place, kernel, mode=0o400)
                else:
                    write_atomically(path, text.encode(), mode=0o400)
        if of is not None:
            with writing(path.parent), self._kept_path(of).open("a", encoding="utf-8") as file:
                file.write(f"{time.time()} {kernel.sha256}\n")
        return kernel.sha256

    def kept_of(self, path: Path) -> dict[str, float]:
        """The revisions that were texts of a kernel, or of one beside it: when each was kept last, by SHA-256."""
        try:
            lines = self._kept_path(path).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return {}
        found = (re.fullmatch(r"(\d+\.?\d*) ([0-9a-f]{64})", line) for line in lines)  # the last line may be torn
        return {match[2]: float(match[1]) for match in found if match}

    def keep_file(self, path: Path) -> Path | None:
        """Keeps the current content of a kernel: as a revision, or as a copy if it cannot be read as a kernel.

        Returns:
            The path of the copy, beside the file; None if there is no copy.

        Raises:
            OSError: no copy could be made.
        """
        try:
            kernel = read_kernel(path)
            self.keep_revision(kernel.text, kernel.files, of=path)
        except UsageError:
            path = main_file(path)
            if path.is_file():
                with path.open("rb") as file:
                    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                copy = path.with_name(f"{path.name}.unreadable-{sha256[:8]}")
                if not copy.exists():
                    shutil.copyfile(path, copy)
                return copy
        return None

    def kernel(self, sha256: str) -> Kernel | None:
        """Returns a revision with all of its files; None if it is not stored or a file is damaged."""
        path = self._revision_path(sha256)
        try:
            folder = path.with_suffix("")
            files = other_files(folder) if folder.is_dir() else {}
            found = Kernel((folder / MAIN if files else path).read_bytes().decode(), files)
        except (OSError, UnicodeDecodeError, UsageError):
            return None
        return found if found.sha256 == sha256 else None

    def put_beside(self, path: Path, kernel: Kernel) -> Path:
        """Writes a kernel beside `path` under a name with its hash. Does not change an existing one.

        Returns:
            Its file or folder.
        """
        name = f"revision-{kernel.sha256[:8]}"
        new = path.with_name(name if kernel.files else f"{name}.py")
        if not new.exists():
            self._write_new(new, kernel)
        return new

    def _write_new(self, path: Path, kernel: Kernel) -> None:
        """Writes a new kernel: a file if the path ends in .py, else a folder."""
        if path.suffix == ".py":
            self.save(path, kernel.source)
            return
        self.keep_revision(kernel.source, kernel.files)
        with writing(path.parent):
            write_folder(path, kernel)

    def _kept_path(self, path: Path) -> Path:
        return self.root / ".revisions" / f"{content_hash(os.path.abspath(path.parent))[:32]}.kept"

    def _revision_path(self, sha256: str) -> Path:
        return self.root / ".revisions" / sha256[:2] / f"{sha256}.py"

    # --- drafts --------------------------------------------------------------------------------------------

    def save_draft(self, path: Path, text: str) -> None:
        """Stores unsaved text, so that a crash loses nothing."""
        draft = self._draft_path(path)
        make_folder(draft.parent)
        with writing(draft.parent):
            write_atomically(draft, text.encode())

    def draft(self, path: Path) -> str | None:
        """Returns the unsaved text of a kernel file; None if there is none or it equals the file."""
        try:
            text = self._draft_path(path).read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            return None
        with suppress(UsageError):
            if read_kernel(path).text == text:
                return None
        return text

    def draft_written(self, path: Path) -> float:
        """When the draft of a kernel file was written, in seconds since 1970; 0.0 if there is none."""
        draft = self._draft_path(path)
        return draft.stat().st_mtime if draft.exists() else 0.0

    def discard_draft(self, path: Path) -> None:
        """Deletes the draft of a kernel file, if there is one."""
        with suppress(OSError):
            self._draft_path(path).unlink()

    def _draft_path(self, path: Path) -> Path:
        return self.root / ".drafts" / f"{content_hash(os.path.abspath(path))[:32]}.py"


def _folder_name(player: str) -> str:
    """Converts a player's name (`you`, `model:gpt-5`) to a folder name that cannot lead out of the workspace."""
    name = quote(player, safe="").replace(".", "%2E" if set(player) == {"."} else ".")
    if not name or len(os.fsencode(name)) > 200:
        raise UsageError(f"{player!r} cannot be a player's name", "use 1 to 60 letters, digits, - or _")
    return name


class KernelLocks:
    """The locks of problems whose kernels this process edits. The system releases them when it ends."""

    def __init__(self, root: Path) -> None:
        self._folder = root / ".locks"
        self._held: dict[str, tuple[int, int]] = {}
        """By problem: the descriptor of the lock file, and the number of `take` calls not yet released."""

    def take(self, stem: str) -> None:
        """Locks the kernels of a problem. Every call needs its own `release`.

        Raises:
            KernelsLocked: another process has locked them; the message names it.
            FolderUnwritable: the lock file cannot be written.
        """
        file, count = self._held.get(stem, (-1, 0))
        self._held[stem] = (self._lock(stem) if not count else file, count + 1)

    def release(self, stem: str) -> None:
        """Undoes one `take`. The last one unlocks the problem's kernels for other apps."""
        file, count = self._held.pop(stem)
        if count > 1:
            self._held[stem] = (file, count - 1)
        else:
            os.close(file)

    def _lock(self, stem: str) -> int:
        make_folder(self._folder)
        with writing(self._folder):
            file = os.open(self._folder / stem, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _holder(file)
            os.close(file)
            raise KernelsLocked(
                f"another pkb-arena{holder} edits the kernels of {stem}", "close the problem there"
            ) from None
        with suppress(OSError):  # the note is optional: a full disk must not stop the app
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps({"pid": os.getpid(), "user": user(), "since": time.time()}).encode(), 0)
        return file


def _holder(file: int) -> str:
    try:
        note = json.loads(os.pread(file, 1024, 0))
        since = time.strftime("%H:%M", time.localtime(float(note["since"])))
        return f" (process {int(note['pid'])}, {note['user']}, since {since})"
    except (ValueError, KeyError, TypeError, OSError):
        return ""
