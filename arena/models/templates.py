"""Texts for models, as files. A folder is a version: a version that results depend on is not edited any more."""

import functools
from pathlib import Path
from string import Template

TEMPLATES = "v1"
"""The version that is used."""

_FOLDER = Path(__file__).parent / "prompt_texts" / TEMPLATES
EXAMPLES = _FOLDER / "examples"
"""The folder of the worked examples."""


@functools.cache
def read_template(name: str) -> str:
    """A template's text; `name` without .md."""
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8").strip()


def fill_template(name: str, **values: object) -> str:
    """A template with its ${names} replaced. Raises KeyError for one that is missing."""
    return Template(read_template(name)).substitute(values)
