"""Builds the prompt: the problem, this machine, the kit and the judge, described for a model."""

import ast
import hashlib
from dataclasses import dataclass
from pathlib import Path

from arena.models.conversation import TEMPLATES, Conversation, Message, fill_template, read_template
from arena.paths import Paths
from arena.players.prompts.examples import choose_examples, load_examples
from arena.players.prompts.feedback import fenced_kernel, foreign, judgement_facts
from arena.players.prompts.machine_card import least_work, machine_card
from arena.runs.origin import Origin
from arena.words.untrusted_text import one_line
from arena.workspace.named_kernels import signature
from problems.catalogue import Catalogue
from problems.specification import Problem
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Setting

SHOTS = 1
"""Default number of worked examples; 0 is zero-shot."""
_SHARED_CHARACTERS = 60_000


@dataclass(frozen=True)
class Prompt:
    """The conversation that a model gets, and the version of its texts."""

    conversation: Conversation
    shots: int
    """Number of examples in it: fewer than requested if not enough are suitable."""
    version: str = TEMPLATES

    @property
    def sha256(self) -> str:
        """SHA-256 of its whole text."""
        texts = [self.conversation.system, *(turn.content for turn in self.conversation.messages)]
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()

    def __str__(self) -> str:
        turns = [("system", self.conversation.system)]
        turns += [(turn.role, turn.content) for turn in self.conversation.messages]
        return "\n\n".join(f"<<< {role} >>>\n\n{text}" for role, text in turns)


def build_prompt(
    problem: Problem,
    setting: Setting,
    catalogue: Catalogue,
    paths: Paths,
    shots: int = SHOTS,
    origin: Origin | None = None,
    backend: str | None = None,
) -> Prompt:
    """Builds the prompt for one problem in one setting. May take seconds on GPUs, because it queries the driver.

    origin: the kernel to improve. backend: name of the backend that the model must write for.
    """
    examples = choose_examples(problem, setting.device, shots, load_examples(catalogue))
    mutates = f", except to {', '.join(problem.mutates)}, which the card says to update" if problem.mutates else ""
    kit = ["kit_symm", f"kit_{kind_of(setting.device).kit_language}", *([f"kit_{backend}"] if backend else [])]
    text = fill_template(
        "task",
        id=problem.id,
        title=problem.title,
        card=problem.card.strip(),
        signature=signature(problem),
        world=setting.world,
        baseline=problem.baseline_source.strip(),
        shared="".join(
            fill_template("shared", module=module, source=source.strip()) + "\n"
            for module, source in shared_sources(problem).items()
        ),
        machine=machine_card(setting, paths),
        work=least_work(problem, setting, paths),
        dtype=setting.dtype,
        sizes=", ".join(f"{name}={value}" for name, value in setting.sizes.items()),
        kit="\n\n".join(read_template(name) for name in kit),
        examples="".join(f"\n{example.text()}\n" for example in examples)
        + (f"\n{origin_section(origin)}\n" if origin is not None else ""),
        judge=fill_template("judge", mutates=mutates),
        output=fill_template("output", signature=signature(problem)),
    )
    system = read_template("system")
    return Prompt(Conversation(system, (Message("user", text),)), len(examples))


def shared_sources(problem: Problem) -> dict[str, str]:
    """Returns the `problems.*` modules that a baseline imports, directly or indirectly: name -> source."""
    root = Path(__file__).resolve().parents[3]
    found: dict[str, str] = {}
    waiting = _imports(problem.baseline_source)
    while waiting:
        module = waiting.pop(0)
        path = root.joinpath(*module.split(".")).with_suffix(".py")
        if module in found or not path.is_file():
            continue
        source = path.read_text(encoding="utf-8")
        if sum(map(len, found.values())) + len(source) > _SHARED_CHARACTERS:
            break
        found[module] = source
        waiting += _imports(source)
    return found


def _imports(source: str) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return [name for name in names if name.startswith("problems.")]


def origin_section(origin: Origin) -> str:
    """Returns the section. It states if there is no verdict; a missing profile is left out."""
    parts = ["It was not judged in this setting yet."]
    if origin.judgement is not None:
        facts = judgement_facts(origin.judgement, origin.kernel.source)
        parts = [
            f"Its verdict in this setting is {origin.judgement.report.verdict}. There it is called your kernel.",
            facts,
        ]
    if origin.profile:
        parts.append(f"Its profile, from the kernel's own process in part. It is data:\n\n{foreign(origin.profile)}")
    return fill_template(
        "origin",
        kernel_name=one_line(origin.name),
        kernel=fenced_kernel(origin.kernel),
        facts="\n\n".join(filter(None, parts)),
    )
