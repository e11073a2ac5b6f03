"""Worked examples for prompts. None belongs to the same problem, class or collective as the task (see `suits`)."""

import re
from dataclasses import dataclass
from pathlib import Path

from arena.models.templates import EXAMPLES, fill_template
from problems.catalogue import Catalogue
from problems.specification import Problem

_HEADER = re.compile(r"^# (problem|device): *(\S+)$", re.MULTILINE)
_SUFFIXES = ("_into_tensor", "_tensor", "_single", "_object")


@dataclass(frozen=True)
class Example:
    """A kernel that passes, and the problem that it solves."""

    problem: Problem
    device: str
    """ "cpu", "cuda", or "any"."""
    source: str

    def text(self) -> str:
        """The example as a section of a prompt."""
        return fill_template(
            "example",
            title=self.problem.title,
            baseline=self.problem.baseline_source.strip(),
            kernel=self.source.strip(),
        )


def load_examples(catalogue: Catalogue) -> list[Example]:
    """All examples, by file name. One of a problem that the catalogue lacks is left out."""
    by_slug = {problem.slug: problem for problem in catalogue.problems}
    examples = []
    for path in sorted(EXAMPLES.glob("*.py")):
        slug, device, source = _read(path)
        if slug in by_slug:
            examples.append(Example(by_slug[slug], device, source))
    return examples


def _read(path: Path) -> tuple[str, str, str]:
    text = path.read_text(encoding="utf-8")
    header = dict(_HEADER.findall(text))
    return header["problem"], header.get("device", "any"), _HEADER.sub("", text).strip() + "\n"


def suits(example: Example, problem: Problem, device: str) -> bool:
    """Another problem of another class and category, without a collective in common, for this device."""
    other = example.problem
    return (
        example.device in {"any", device}
        and other.id != problem.id
        and other.slug != problem.slug
        and other.class_ != problem.class_
        and other.category != problem.category
        and not (_collectives(other) & _collectives(problem))
    )


def choose_examples(problem: Problem, device: str, shots: int, examples: list[Example]) -> list[Example]:
    """Up to `shots` examples: those for this very device first, each of another problem."""
    found = [example for example in examples if suits(example, problem, device)]
    found.sort(key=lambda example: example.device == "any")
    chosen: dict[int, Example] = {}
    for example in found:
        chosen.setdefault(example.problem.id, example)
    return list(chosen.values())[:shots]


def _collectives(problem: Problem) -> set[str]:
    found = set()
    for name in problem.collectives:
        for suffix in _SUFFIXES:
            name = name.removesuffix(suffix)  # noqa: PLW2901
        found.add({"batch_isend_irecv": "send", "isend": "send", "recv": "send", "irecv": "send"}.get(name, name))
    return found
