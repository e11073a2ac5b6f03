"""Stores measured times of the baseline variants by setting. Later verdicts show them beside the baseline."""

from hashlib import sha256
from pathlib import Path

import msgspec

from arena.paths import write_atomically
from sandbox.protocol.events import Microseconds, Setting


def _file(folder: Path, setting: Setting) -> Path:
    slug = Path(setting.problem_dir).name
    exact = sha256(msgspec.json.encode(msgspec.structs.replace(setting, problem_dir=""))).hexdigest()[:12]
    return folder / f"yardsticks-{slug}-{setting.device}-{setting.world}-{exact}.json"


def keep(folder: Path, setting: Setting, word: str, times: Microseconds) -> None:
    """Stores the times of one baseline variant in a setting. Raises OSError if the folder cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    found = times_for(folder, setting) | {word: times}
    write_atomically(_file(folder, setting), msgspec.json.encode(found))


def times_for(folder: Path, setting: Setting) -> dict[str, Microseconds]:
    """Returns the stored times by variant; empty if none was measured in this setting or the file is damaged."""
    try:
        return msgspec.json.decode(_file(folder, setting).read_bytes(), type=dict[str, Microseconds])
    except (OSError, ValueError):
        return {}
