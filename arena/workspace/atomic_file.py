"""Writing a file so that a reader, also after a crash, sees the old text or the new one."""

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replaces `path` with `data`; an existing file keeps its permissions, a symbolic link keeps pointing.

    Raises:
        OSError: nothing was changed.
    """
    target = Path(os.path.realpath(path))
    with suppress(FileNotFoundError):
        mode = target.stat().st_mode & 0o7777
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
