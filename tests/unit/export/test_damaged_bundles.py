"""Bundles with a file that ends early or has a wrong byte: refused with the reason, and nothing of them is imported."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from damage import flips
from fixed_examples import examples
from hypothesis import given
from hypothesis import strategies as st
from stored_runs import cell_result

from arena.errors import ArenaError, UsageError
from arena.export.bundle import MANIFEST, export_bundle, import_bundle
from arena.machine.facts import Machine
from arena.models.budget import Spent
from arena.paths import Paths, paths_in
from arena.sweep.journal import SweepJournal
from arena.sweep.records import Cell, SweepPlan, SweepSession, Written
from arena.workspace.kernels import content_hash
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Setting

KERNEL = "def solution(tensor):\n    return tensor  # größer\n"
HERE = Machine("a small box", "", "2.9", "gloo")
PAID = Spent(10, 20, 0.5)


def played(paths: Paths) -> None:
    """Writes a sweep with one result, and its trace."""
    journal = SweepJournal(paths.sweeps / "spring.jsonl", "spring")
    plan = SweepPlan(players=["agent:s"], problems=["allreduce"])
    journal.append(SweepSession(at=1.0, plan=plan, machines=[HERE], arena="0"))
    setting = Setting("", "tiny", {"M": 8}, 2, "cpu", "float32")
    cell = Cell(slug="allreduce", setting=setting, player="agent:s", attempt=1, catalogue="v")
    sha256 = content_hash(KERNEL)
    journal.append(Written(cell=cell, source=KERNEL, file_name="k.py", reason="", spent=PAID, trace_id="t1"))
    journal.append(
        cell_result(
            cell,
            at=2.0,
            key=cell.key(sha256, HERE.digest),
            sha256=sha256,
            machine=HERE.digest,
            spent=PAID,
            trace_id="t1",
        )
    )
    journal.close()
    paths.traces.mkdir(parents=True)
    (paths.traces / "t1.jsonl").write_text('{"type":"trace"}\n')


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    paths = paths_in(folder / "home")
    played(paths)
    export_bundle(paths, load_catalogue(), folder / "bundle")
    return folder / "bundle"


@pytest.fixture
def damaged(bundle: Path, tmp_path: Path) -> Callable[[str, bytes], Path]:
    """damaged(file, content): returns the bundle with this file changed; the next call restores the file."""
    folder = tmp_path / "bundle"
    shutil.copytree(bundle, folder)
    changed: list[str] = []

    def change(name: str, data: bytes) -> Path:
        while changed:
            last = changed.pop()
            (folder / last).write_bytes((bundle / last).read_bytes())
        (folder / name).write_bytes(data)
        changed.append(name)
        return folder

    return change


def taken(paths: Paths) -> Iterator[bytes]:
    return (path.read_bytes() for path in paths.imports.glob("*"))


Damaged = Callable[[str, bytes], Path]


@examples(150)
@given(st.data())
def test_file_with_wrong_byte_or_end_is_named(
    bundle: Path, damaged: Damaged, paths: Paths, data: st.DataObject
) -> None:
    files = sorted(str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file())
    name = data.draw(st.sampled_from([file for file in files if file != MANIFEST]))
    whole = (bundle / name).read_bytes()
    ends = st.integers(0, len(whole) - 1).map(lambda length: whole[:length])
    folder = damaged(name, data.draw(st.one_of(ends, flips(whole).map(lambda flip: flip.data))))
    with pytest.raises(UsageError, match="is not what the manifest says") as caught:
        import_bundle(paths, folder)
    assert name in caught.value.message
    assert not paths.imports.exists()


@examples(200)
@given(st.data())
def test_damaged_manifest_admits_exported_files_or_nothing(
    bundle: Path, damaged: Damaged, paths: Paths, data: st.DataObject
) -> None:
    whole = (bundle / MANIFEST).read_bytes()
    ends = st.integers(0, len(whole) - 1).map(lambda length: whole[:length])
    folder = damaged(MANIFEST, data.draw(st.one_of(ends, flips(whole).map(lambda flip: flip.data))))
    shutil.rmtree(paths.imports, ignore_errors=True)
    try:
        import_bundle(paths, folder)
    except ArenaError as error:
        error.message.encode()
        assert list(taken(paths)) == []
    else:
        assert list(taken(paths)) == [(bundle / "sweeps" / "spring.jsonl").read_bytes()]


def test_a_manifest_that_is_no_text_is_damaged(damaged: Damaged, paths: Paths) -> None:
    with pytest.raises(UsageError, match=r"its manifest\.json is damaged"):
        import_bundle(paths, damaged(MANIFEST, b'{"arena": "\xff"}'))
