"""The manifest of a bundle: the SHA-256 of every file in it, and a signature of the manifest if its maker signed it.

OpenSSH signs and checks (`ssh-keygen -Y`): users have such keys already, and others can check the format.
"""

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import IO

import msgspec

from arena.errors import MachineError, UsageError, why
from arena.words.untrusted_text import printable

MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"
"""As `ssh-keygen -Y sign` writes it."""
NAMESPACE = "pkb-arena-bundle"
VERSION = 1
SIGN_S = 120.0
"""Longest time to type a passphrase."""
_CHUNK = 1 << 20


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """manifest.json."""

    created: float
    """Seconds since the epoch."""
    arena: str
    """Version of pkb-arena."""
    results: int
    files: dict[str, str]
    """SHA-256 by path in the bundle."""
    version: int = VERSION


def write_manifest(folder: Path, created: float, arena: str, results: int) -> Manifest:
    """Writes the manifest of everything in a folder. Raises OSError."""
    files = {str(path.relative_to(folder)): sha256_of(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    manifest = Manifest(created=created, arena=arena, results=results, files=files)
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    return manifest


def check_manifest(folder: Path) -> Manifest:
    """Checks that every file of a bundle is there and unchanged. Returns the manifest.

    Raises:
        UsageError: a file is missing, was changed or leads out of the folder; or no manifest can be read.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", "`pkb-arena export DIR` makes a bundle")
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, ValueError) as error:
        fault = "it has no manifest.json" if isinstance(error, FileNotFoundError) else "its manifest.json is damaged"
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            fault = why(error)
        raise UsageError(f"{folder} is no bundle: {fault}", "`pkb-arena export DIR` makes one") from None
    if manifest.version > VERSION:
        raise UsageError(f"{folder} was made by a newer pkb-arena ({manifest.arena})", "update this one")
    root = folder.resolve()
    for name, digest in manifest.files.items():
        path = folder / name
        try:
            there = path.resolve().is_relative_to(root) and path.is_file()
            found = sha256_of(path) if there else ""
        except ValueError:  # a NUL in its name
            there = False
        except OSError as error:
            raise UsageError(f"{path}: {why(error)}", "make it readable") from None
        if not there:
            raise UsageError(f"{folder}: {printable(name)} is missing", "ask its maker for the whole bundle")
        if found != digest:
            raise UsageError(
                f"{folder}: {printable(name)} is not what the manifest says", "ask its maker for the bundle again"
            )
    return manifest


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file, as hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def require_key(key: Path) -> None:
    """Raises UsageError if there is no such file. Called before a bundle is written."""
    if not key.is_file():
        raise UsageError(f"there is no key {key}", "name a private SSH key, such as ~/.ssh/id_ed25519")


def sign(folder: Path, key: Path) -> None:
    """Signs the manifest with an SSH key.

    Raises:
        UsageError: the key cannot be used.
        MachineError: there is no ssh-keygen.
    """
    (folder / SIGNATURE).unlink(missing_ok=True)
    command = [_ssh_keygen(), "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(folder / MANIFEST)]
    try:
        done = _run(command)
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{key} did not sign within {SIGN_S:.0f} s", "type its passphrase sooner, or load it into ssh-agent"
        ) from None
    if done.returncode:
        raise UsageError(
            f"{key} cannot sign: {_last_line(done.stderr)}", "name a private SSH key, such as ~/.ssh/id_ed25519"
        )


def signer_of(folder: Path, allowed: Path) -> str:
    """Returns who signed a bundle: the name in a file of allowed signers (ssh-keygen(1), "ALLOWED SIGNERS").

    Raises:
        UsageError: the bundle is not signed, nobody in that file signed it, or there is no such file.
        MachineError: there is no ssh-keygen.
    """
    if not allowed.is_file():
        raise UsageError(f"there is no file {allowed}", "a line of it is: NAME ssh-ed25519 AAAA...")
    signature = folder / SIGNATURE
    if not signature.is_file():
        raise UsageError(f"{folder} is not signed", "import it without --signers, if you trust where it comes from")
    keygen = _ssh_keygen()
    found = _run([keygen, "-Y", "find-principals", "-f", str(allowed), "-s", str(signature)])
    name = found.stdout.splitlines()[0] if found.returncode == 0 and found.stdout else ""
    with (folder / MANIFEST).open("rb") as manifest:
        signer = ["-f", str(allowed), "-I", name, "-n", NAMESPACE, "-s", str(signature)]
        checked = _run([keygen, "-Y", "verify", *signer], manifest)
    if not name or checked.returncode:
        raise UsageError(f"{folder} is signed by nobody in {allowed}", "add the signer's public key, if you trust it")
    return name


def _run(command: list[str], stdin: IO[bytes] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdin=stdin, capture_output=True, text=True, timeout=SIGN_S, check=False)


def _ssh_keygen() -> str:
    found = shutil.which("ssh-keygen")
    if found is None:
        raise MachineError("signatures need ssh-keygen, which is not here", "apt-get install openssh-client")
    return found


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "ssh-keygen failed"
