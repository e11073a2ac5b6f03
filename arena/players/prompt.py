"""Builds the prompt: the problem, this machine, the kit and the judge, described for a model."""

import ast
import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arena.machine.calibration import in_units, peaks_for, stored_as
from arena.machine.facts import gpu_details, installed_version, processor
from arena.machine.gpu_topology import GpuPair, topology
from arena.machine.transfers import StoredTransfers, prompt_lines
from arena.models.conversation import EXAMPLES, TEMPLATES, Conversation, Message, fill_template, read_template
from arena.paths import Paths
from arena.players.feedback import fenced_kernel, foreign, judgement_facts
from arena.runs.origin import Origin
from arena.words.untrusted_text import one_line
from arena.workspace.named_kernels import signature
from problems.catalogue import Catalogue
from problems.specification import Problem
from sandbox.machine.devices import kind_of
from sandbox.machine.nvml import Gpu, NvmlMissing
from sandbox.protocol.events import Setting
from sandbox.timing.roofline import Peaks, bound_us

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


def machine_card(setting: Setting, paths: Paths) -> str:
    """Returns the description of the machine. Takes up to a second on GPUs, because it queries the driver."""
    torch = installed_version("torch") or "unknown"
    if not kind_of(setting.device).on_gpus:
        cores = len(os.sched_getaffinity(0))
        lines = [
            f"CPU ranks: {setting.world} processes on one machine, {processor()}, {cores} cores for all of them.",
            f"torch {torch}; collectives over gloo; tensors are in ordinary memory; one thread a rank is best.",
            f"{'gcc is there: C++ can be compiled.' if shutil.which('gcc') else 'There is no C++ compiler.'}",
        ]
    else:
        gpus = gpu_details()
        names = sorted({f"{gpu.name}, {gpu.memory_mib // 1024} GiB" for gpu in gpus}) or ["unknown"]
        lines = [
            f"GPU ranks: {setting.world} of {len(gpus) or 'some'} GPUs of one host, one rank each: {'; '.join(names)}.",
            f"torch {torch}; collectives over NCCL.",
            *_connections(gpus[: setting.world]),
        ]
    peaks = peaks_for(paths.calibrations, setting)
    if peaks:
        lines += ["", "Measured on this machine, per rank with all ranks busy:", ""]
        lines += [f"- {name.replace('_', ' ')}: {_figure(name, value)}" for name, value in peaks.items()]
    transfers = stored_as(StoredTransfers, paths.calibrations, setting.device, setting.world)
    if transfers is not None:
        lines += ["", *prompt_lines(transfers)]
    return "\n".join(lines)


def least_work(problem: Problem, setting: Setting, paths: Paths) -> str:
    """Describes the least work of one call, and its minimum time if this machine was calibrated."""
    cost = problem.cost(setting.sizes, setting.world, setting.dtype)
    text = (
        f"The least work of one call, per rank: {_amount(cost.flops)} floating-point operations, "
        f"{_amount(cost.local_bytes)} bytes of its own memory, {_amount(cost.sent_bytes)} bytes sent, "
        f"{_amount(cost.received_bytes)} bytes received."
    )
    peaks = Peaks.of(peaks_for(paths.calibrations, setting), setting)
    if peaks.known:
        bound, limiter = bound_us(setting, peaks)
        text += f" On this machine that takes at least {bound:.3g} µs, set by {limiter}."
    return text


def _amount(number: float) -> str:
    return f"{number:.0f}" if number < 1e7 else f"{number:.3g}"


def _figure(name: str, value: float) -> str:
    figure, unit = in_units(name, value)
    return f"{figure:.3g} {unit}"


def _connections(gpus: Sequence[Gpu]) -> list[str]:
    """Describes the connections between these GPUs, rank 0 first; empty if the driver does not answer."""
    if len(gpus) < 2:
        return []
    try:
        found = topology(gpus)
    except NvmlMissing:
        return []
    rank = {gpu.index: rank for rank, gpu in enumerate(gpus)}

    def between(pairs: Sequence[GpuPair], joined: bool) -> str:
        if len(pairs) == len(found.pairs):
            return f"between {'every' if joined else 'any'} two ranks"
        names = [f"{rank[pair.first.index]}-{rank[pair.second.index]}" for pair in pairs]
        return f"between ranks {', '.join(names)}"

    links = "; ".join(
        f"{number or 'no'} links {between(pairs, number > 0)}" for number, pairs in found.by_links().items()
    )
    up = " or ".join(map(str, sorted({links.up for links in found.links})))
    total = f"; a rank has {up} links up in all" if any(found.by_links()) else ""
    no_p2p = [f"not {between(pairs, False)} (reason: {why})" for why, pairs in found.without_p2p().items()]
    return [
        f"NVLink: {links}{total}{', to switches' if total and found.switched else ''}.",
        f"Peer memory: {'; '.join(no_p2p) or 'every rank can read and write that of every other'}.",
    ]


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
    root = Path(__file__).resolve().parents[2]
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
