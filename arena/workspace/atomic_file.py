"""Writes files atomically: a reader gets the old text or the new text, even after a crash."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from arena.paths import NAMED, unwritable


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replaces `path` with `data`. An existing file keeps its permissions, a symbolic link stays a link.

    Devices such as /dev/stdout and /dev/null are written to: replacing them would remove them for all processes.

    Raises:
        OSError: nothing was changed.
    """
    with suppress(FileNotFoundError):
        found = path.stat().st_mode
        if not stat.S_ISREG(found) and not stat.S_ISDIR(found):
            with open(path, "wb") as device:
                device.write(data)
            return
        mode = found & 0o7777
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)  # the rename itself must survive a power cut
    finally:
        os.close(folder)


def write_named_file(path: Path, content: str | bytes) -> None:
    """Writes a file at a path that the user gave, as `write_atomically` does. All users can read a new file.

    Raises:
        FolderUnwritable: nothing was changed.
    """
    try:
        write_atomically(path, content.encode() if isinstance(content, str) else content, mode=0o644)
    except OSError as error:
        target = Path(os.path.realpath(path)) if path.is_symlink() else path.absolute()
        raise unwritable(path if path.is_dir() else target.parent, error, NAMED) from None
