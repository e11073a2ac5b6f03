"""The documents name files that exist, link to files that exist, and stay short."""

import re
import runpy
from pathlib import Path

import pytest

import arena

ROOT = Path(arena.__file__).resolve().parent.parent
MOST_WORDS = {
    "README.md": 1000,
    "ARCHITECTURE.md": 1600,
    "CONTRIBUTING.md": 1000,
    "SECURITY.md": 2400,
    "BENCHMARKS.md": 1500,
    "CHANGELOG.md": 500,
    "docs/decisions.md": 1200,
    "docs/comparison.md": 450,
    **{f"docs/guide/{page.name}": 450 for page in (ROOT / "docs" / "guide").glob("*.md")},
}
FOLDERS = "arena|benchmarks|docs|pkb_arena|problems|sandbox|screens|tests|themes"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)`")
LINK = re.compile(r"\]\(([^)#:]+)\)")


@pytest.mark.parametrize("name", [*MOST_WORDS, "tests/attacks/RESULTS.md"])
def test_every_file_that_a_document_names_exists(name: str) -> None:
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    named = {ROOT / path for path in PATH.findall(text)} | {page.parent / link for link in LINK.findall(text)}
    assert sorted(str(path) for path in named if not path.exists()) == []


@pytest.mark.parametrize(("name", "most"), MOST_WORDS.items())
def test_a_document_stays_short(name: str, most: int) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").split()) <= most


DOCS = Path(arena.__file__).resolve().parent.parent / "docs"


def test_the_man_page_is_that_of_the_commands() -> None:
    made = runpy.run_path(str(DOCS / "manual_page.py"))["page"]()
    assert (DOCS / "pkb-arena.1").read_text(encoding="utf-8") == made, "run: python docs/manual_page.py"
