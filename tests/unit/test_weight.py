"""The weight of the code may only fall. `python tests/unit/test_weight.py` writes today's numbers into weight.toml.

The commit's diff of weight.toml shows what became lighter. Raise a number only if a feature needs it, and say why.
"""

import ast
import re
import tomllib
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("weight.toml")
FOLDERS = ("arena", "pkb_arena", "screens", "sandbox", "problems", "themes", "benchmarks", "tests")
SUFFIXES = {".py", ".cu", ".cuh", ".tcss", ".toml", ".cpp", ".h"}
SMALL_LINES, LONG_LINES, FUNCTION_LINES = 60, 500, 60
WORDS = 8
"""Most words in the name of a test."""
COUNTED = tomllib.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}


def weight(folder: str, importers: Counter[str]) -> dict[str, int]:
    """Counts one top folder.

    The number of modules is not counted, because two jobs in one module are no gain.
    one_importer: modules of less than 60 lines that exactly one module imports; empty packages are left out.
    long_files: Python files of more than 500 lines, which may have a second job.
    verdict_classes: classes with a field `verdict`. copied_fields: lines `name=other.name`, as arguments.
    """
    found: Counter[str] = Counter()
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix not in SUFFIXES or path == TABLE:
            continue
        text = path.read_text(encoding="utf-8")
        lines = len(text.splitlines())
        found["lines"] += lines
        if path.suffix == ".py":
            small = lines < SMALL_LINES
            found["small_files"] += small
            found["long_files"] += lines > LONG_LINES
            found["one_importer"] += small and bool(text) and importers[_module(path)] == 1
            found += _code_of(path)[0]
    names = ("lines", "small_files", "one_importer", "long_files", "classes")
    return {name: found[name] for name in (*names, "long_functions", "verdict_classes", "copied_fields")}


@cache
def _code_of(path: Path) -> tuple[Counter[str], set[str]]:
    """Counts what a module has, and names what it imports. Nothing of kernels in tests/attacks that have placeholders."""
    with suppress(SyntaxError):
        return _code(ast.parse(path.read_text(encoding="utf-8")))
    return Counter(), set()


def _code(tree: ast.Module) -> tuple[Counter[str], set[str]]:
    found: Counter[str] = Counter()
    copied, imported = set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                imported |= {each.name for each in node.names}
            case ast.ImportFrom(module=str(module)):
                imported |= {module} | {f"{module}.{each.name}" for each in node.names}
            case ast.ClassDef():
                found["classes"] += 1
                found["verdict_classes"] += any(
                    isinstance(each, ast.AnnAssign) and ast.unparse(each.target) == "verdict" for each in node.body
                )
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found["long_functions"] += (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES
            case ast.keyword(arg=name, value=ast.Attribute(attr=attr)) if name == attr:
                copied.add(node.lineno)
    found["copied_fields"] = len(copied)
    return found, imported


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def importers_of_modules() -> Counter[str]:
    """Counts the modules of the product that import each module."""
    found: Counter[str] = Counter()
    for folder in FOLDERS[:-1]:
        for path in (ROOT / folder).rglob("*.py"):
            found.update(_code_of(path)[1])
    return found


@pytest.fixture(scope="module")
def importers() -> Counter[str]:
    return importers_of_modules()


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_is_not_heavier_than_recorded(folder: str, importers: Counter[str]) -> None:
    heavier = {
        name: f"{count}, recorded {COUNTED[folder][name]}"
        for name, count in weight(folder, importers).items()
        if count > COUNTED[folder][name]
    }
    assert not heavier, f"{folder} is heavier; make it lighter, or see the first lines of {Path(__file__).name}"


def test_scores_of_mistakes_keep_their_floors() -> None:
    """Raise a floor in mutants.toml when more mistakes are found; none may be lowered."""
    table = tomllib.loads(TABLE.with_name("mutants.toml").read_text(encoding="utf-8"))
    for folder, row in table["folders"].items():
        for score in [each for each in row.values() if isinstance(each, dict)][-1:]:
            assert score["found"] >= row["floor"] * score["tried"], folder


def test_names_of_tests_have_at_most_8_words() -> None:
    files = (ROOT / "tests").rglob("test_*.py")
    names = [name for path in files for name in re.findall(r"def test_(\w+)", path.read_text(encoding="utf-8"))]
    assert not [name for name in names if len(name.split("_")) > WORDS]


def test_counts_find_what_they_count() -> None:
    found, _ = _code(ast.parse("class A:\n    verdict: str\n\ndef f(x):\n    return A(verdict=x.verdict, y=x.z)\n"))
    assert (found["classes"], found["verdict_classes"], found["copied_fields"]) == (1, 1, 1)


if __name__ == "__main__":
    counted = importers_of_modules()
    parts = [
        f"[{folder}]\n" + "".join(f"{name} = {count}\n" for name, count in weight(folder, counted).items())
        for folder in FOLDERS
    ]
    TABLE.write_text("\n".join(parts), encoding="utf-8")
