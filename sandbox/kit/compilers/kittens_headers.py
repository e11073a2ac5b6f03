"""ThunderKittens' headers for extensions of upstream's harness: a tree of links, in which tensors use the kit's memory.

Also refuses sources that need what no world here has, before nvcc compiles them for a minute.
"""

import re
from pathlib import Path

from sandbox.kit.compilers.gcc import INCLUDE
from sandbox.kit.errors import CompileError
from sandbox.machine import thunderkittens

_OWN = Path("pyutils") / "parallel_tensor.cuh"
"""The header that the kit replaces."""
_INCLUDED = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*[<"](?:[\w./]*/)?(?:kittens\.cuh|pyutils/|prototype\.cuh)', re.MULTILINE
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEVICES = re.compile(r"\bNUM_DEVICES\s*(?:=\s*|\s)(\d+)")
_MULTICAST = re.compile(
    r"\b(multimem)\b|\bkittens::(barrier_t)\b|\b(barrier_t)\s*<|\b(pgl)\s*<[^;]*?\bNUM_DEVICES\s*(?:>|,\s*true\b)"
)
"""A pgl has multicast unless its third parameter is false."""
_OWN_BARRIER = re.compile(r"\busing\s+barrier_t\b")


def are_included(text: str) -> bool:
    """Whether a source includes ThunderKittens' headers."""
    return bool(_INCLUDED.search(_COMMENT.sub("", text)))


def checkout() -> Path:
    """The checkout with which kernels are compiled. Raises CompileError if there is none."""
    root = thunderkittens.checkout()
    if root is None:
        raise CompileError(thunderkittens.why_missing())
    return root


def refuse(text: str, world: int) -> None:
    """Raises CompileError if a source is for another number of GPUs than `world`, or needs multicast."""
    plain = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    for named in _DEVICES.finditer(plain):
        if int(named[1]) != world:
            where = f"NUM_DEVICES, its line {_line(plain, named)}"
            raise CompileError(f"the CUDA source is for {named[1]} GPUs ({where}), this world has {world}")
    found = None if _OWN_BARRIER.search(plain) else _MULTICAST.search(plain)
    if found is not None:
        what = f"{found[found.lastindex or 0]} with multicast (its line {_line(plain, found)})"
        raise CompileError(
            f"the CUDA source uses {what}, which needs NVLS, and the kit's symmetric memory has none; "
            "use pgl<GL, NUM_DEVICES, false>, with a barrier of that type"
        )


def linked(root: Path, folder: Path) -> list[str]:
    """Makes a tree of links in `folder`: the checkout with the kit's header in it. Returns its include paths."""
    for shown in thunderkittens.FOLDERS:
        _link(root / shown, folder / shown)
    pyutils = folder / "include" / _OWN.parent
    if pyutils.is_symlink():
        pyutils.unlink()
        _link(root / "include" / _OWN.parent, pyutils)
    pyutils.mkdir(exist_ok=True)
    own = folder / "include" / _OWN
    own.unlink(missing_ok=True)
    own.symlink_to(INCLUDE / "kittens" / _OWN)
    return [str(folder / shown) for shown in thunderkittens.FOLDERS]


def key(root: Path) -> str:
    """Identifies the headers in the cache keys of extensions that are built with them."""
    return thunderkittens.fingerprint(root) + (INCLUDE / "kittens" / _OWN).read_text()


def _link(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for entry in source.iterdir():
        (target / entry.name).symlink_to(entry)


def _line(text: str, found: re.Match[str]) -> int:
    return text.count("\n", 0, found.start()) + 1
