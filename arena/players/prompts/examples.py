"""Worked examples for prompts. An example never shares its problem, class, category or a collective with the task."""

import re
from dataclasses import dataclass
from pathlib import Path

from arena.models.conversation import EXAMPLES, fill_template
from problems.catalogue import Catalogue
from problems.specification import Problem

_HEADER = re.compile(r"^# (problem|device): *(\S+)$", re.MULTILINE)
_SUFFIXES = ("_into_tensor", "_tensor", "_single", "_object")


@dataclass(frozen=True)
class Example:
    """A correct kernel, and the problem that it solves."""

    problem: Problem
    device: str
    """ "cpu", "cuda", or "any"."""
    source: str

    def text(self) -> str:
        """Returns the example as a section of a prompt."""
        return fill_template(
            "example",
            title=self.problem.title,
            baseline=self.problem.baseline_source.strip(),
            kernel=self.source.strip(),
        )


def load_examples(catalogue: Catalogue) -> list[Example]:
    """Loads all examples, sorted by file name. Skips examples of problems that the catalogue does not have."""
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
    """Whether an example fits the device, and its problem has another class, another category, no common collective."""
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
    """Chooses up to `shots` examples of different problems. Those written for this device only come first."""
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
