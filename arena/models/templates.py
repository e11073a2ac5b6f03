"""Texts for models, as files. A folder is a version. Do not edit a version that stored results depend on."""

import functools
from pathlib import Path
from string import Template

TEMPLATES = "v1"
"""The version in use."""

_FOLDER = Path(__file__).parent / "prompt_texts" / TEMPLATES
EXAMPLES = _FOLDER / "examples"
"""The folder of the worked examples."""


@functools.cache
def read_template(name: str) -> str:
    """Reads a template. name: the file name without .md."""
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8").strip()


def fill_template(name: str, **values: object) -> str:
    """Reads a template and replaces its ${names}. Raises KeyError if a value is missing."""
    return Template(read_template(name)).substitute(values)
