"""The man page has the text of the commands' own help."""

import runpy
from pathlib import Path

import arena

DOCS = Path(arena.__file__).resolve().parent.parent / "docs"


def test_the_man_page_is_that_of_the_commands() -> None:
    made = runpy.run_path(str(DOCS / "manual_page.py"))["page"]()
    assert (DOCS / "pkb-arena.1").read_text(encoding="utf-8") == made, "run: python docs/manual_page.py"
