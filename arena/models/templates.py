"""Texts for models, as files. A folder is a version: a version that results depend on is not edited any more."""

import functools
from pathlib import Path
from string import Template

TEMPLATES = "v1"
"""The version that is used."""

_FOLDER = Path(__file__).parent / "prompt_texts"


@functools.cache
def read_template(version: str, name: str) -> str:
    """A template's text; `name` without .md."""
    return (_FOLDER / version / f"{name}.md").read_text(encoding="utf-8").strip()


def fill_template(version: str, name: str, **values: object) -> str:
    """A template with its ${names} replaced. Raises KeyError for one that is missing."""
    return Template(read_template(version, name)).substitute(values)


def examples_folder(version: str) -> Path:
    """The folder of a version's worked examples."""
    return _FOLDER / version / "examples"
