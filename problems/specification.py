"""The specification of a problem, read from its folder without torch.

A folder `problems/<category>/<slug>/` holds problem.toml (this module's `ProblemFile`), card.md (what the player
reads), inputs.py (how arguments are drawn and assembled), baseline.py (the PyTorch + NCCL solution) and, if the problem
has a house kernel, house.py.
"""

import ast
import difflib
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from problems.formula import FormulaError, evaluate
from problems.toml_fields import misfit

CATEGORIES = (
    "collective",
    "tensor",
    "sequence",
    "context",
    "pipeline",
    "data",
    "expert",
    "fsdp",
    "vocab",
    "graph",
    "spatial",
    "other",
)
PRESETS = ("tiny", "paper", "production")
CLASSES = {
    "A": "the baseline loops in Python or waits for the host",
    "B": "a chain of small collectives: launches take the time",
    "C": "large messages between the ranks: bandwidth takes the time",
    "D": "the time goes into compute that libraries do well",
}
"""What takes the baseline's time, by the problem's class."""
LARGEST_SIZE = 10**15
"""A larger size does not fit any memory, and products of sizes would not fit 64 bits."""
DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "int32": 4, "uint8": 1, "int8": 1}


class ProblemError(ValueError):
    """A problem folder that cannot be used. The message says which file, what is wrong and what to do."""


class SizeError(ValueError):
    """A size parameter that the problem does not have or cannot take."""


class WorldRefused(ValueError):
    """A world size that the problem does not allow."""


class Cost(msgspec.Struct, frozen=True):
    """The least work of one call per rank: floating-point operations and bytes."""

    flops: float
    local_bytes: float
    sent_bytes: float
    received_bytes: float


class CostFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Formulas per rank; see problems.formula for what they may contain."""

    local: str
    sent: str
    received: str = ""
    """Empty: as `sent`."""
    flops: str = "0"


class CheckFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How outputs are compared. The defaults fit most problems."""

    oracle: str = "float64"
    """float64: the baseline on inputs widened to float64; baseline: the baseline itself. `oracle` of inputs.py replaces both."""
    rms_floor: float = 0.0
    """Relative RMS error that is always accepted (a card's own bound), beside the limits derived from the baseline."""
    max_floor: float = 0.0
    """The same for the largest elementwise error, relative to |y*| + rms(y*)."""
    floors: dict[str, tuple[float, float]] = {}
    """(rms_floor, max_floor) of single run dtypes, where one pair cannot serve all of them."""
    exact: list[str] = []
    """Outputs that must match bit for bit even though they are floating-point ("0", "1.depth"...); ["*"] = all."""
    by_iteration: bool = False
    """Whether limits follow the baseline's error in the compared iteration, not its usual error. For outputs whose
    error depends on the inputs and is about the same for every correct kernel."""
    along: int = -1
    """A dimension each of whose indices must meet the RMS limit, because only some depend on messages; -1: none."""
    may_alias: bool = False
    """The result may be an argument itself (06: ranks other than the root return their input)."""
    only_returned: bool = False
    """What becomes of `mutates` is not compared, and so not copied either: a kernel could make that copy cheap."""
    excused: dict[str, str] = {}
    """Cheats of the admission test that no check can detect here -> reason. Keys: "silent", or "input@1" for W = 1."""
    notes: str = ""
    """Other limits of the correctness check, and their reasons."""

    def floor(self, dtype: str) -> tuple[float, float]:
        """(rms_floor, max_floor) for a run in this dtype."""
        return self.floors.get(dtype, (self.rms_floor, self.max_floor))


class ProblemFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """problem.toml. By default `slug` and `category` are the names of its folder and of the folder above."""

    id: int
    slug: str
    stem: str
    title: str
    category: str
    domain: str
    origin: str
    class_: str = msgspec.field(name="class")
    collectives: list[str]
    presets: dict[str, dict[str, int]]
    formulas: CostFile = msgspec.field(name="cost")
    also: list[str] = []
    groups: str = "world"
    worlds: list[int] = msgspec.field(default_factory=lambda: [1, 2, 3, 4, 5, 6, 7, 8])
    worlds_reason: str = ""
    dtypes: list[str] = msgspec.field(default_factory=lambda: ["bfloat16", "float32", "float16"])
    derived: dict[str, str] = {}
    """Sizes computed from the parameters, in order; each may use those above it."""
    arguments: dict[str, str] = {}
    """Of parameters of solution that are not drawn: a formula, or the name of a process group if theirs ends in "group"."""
    capacity: str = ""
    """A formula of the most bytes of a rank's outputs, if their sizes depend on data."""
    mutates: list[str] = []
    """Names of drawn tensors that the solution may write to. Unless `check.only_returned`, their final values are compared."""
    check: CheckFile = CheckFile()


class Problem(ProblemFile, frozen=True, kw_only=True, eq=False, dict=True):
    """One problem: its problem.toml and the files beside it."""

    folder: Path

    def __repr__(self) -> str:
        return f"Problem({self.stem})"

    @cached_property
    def card(self) -> str:
        """card.md: what the player reads."""
        return (self.folder / "card.md").read_text(encoding="utf-8")

    @cached_property
    def baseline_source(self) -> str:
        """baseline.py's text."""
        return (self.folder / "baseline.py").read_text(encoding="utf-8")

    @cached_property
    def house_source(self) -> str | None:
        """house.py's text, or None if the problem has no house kernel."""
        path = self.folder / "house.py"
        return path.read_text(encoding="utf-8") if path.exists() else None

    @cached_property
    def parameters(self) -> list[tuple[str, str | None]]:
        """solution's parameters as (name, default's source or None), read from baseline.py without running it."""
        defaults: list[str | None] = [ast.unparse(default) for default in self._signature.defaults]
        names = [argument.arg for argument in self._signature.args]
        return list(zip(names, [None] * (len(names) - len(defaults)) + defaults, strict=True))

    @property
    def written(self) -> list[str]:
        """Names of drawn tensors whose final values are compared."""
        return [] if self.check.only_returned else self.mutates

    @cached_property
    def plain_parameters(self) -> frozenset[str]:
        """Names of solution's parameters whose annotations name no tensor: numbers, flags and lists of them."""
        annotated = {each.arg: ast.unparse(each.annotation) for each in self._signature.args if each.annotation}
        return frozenset(name for name, annotation in annotated.items() if "Tensor" not in annotation)

    @cached_property
    def _signature(self) -> ast.arguments:
        function = find_solution(self.baseline_source)
        if function is None:
            raise ProblemError(f"{self.folder / 'baseline.py'} defines no solution(...)")
        return function.args

    def sizes(self, preset: str, overrides: dict[str, int] | None = None) -> dict[str, int]:
        """The size parameters of a preset with overrides applied.

        Raises:
            SizeError: unknown preset or parameter, or a value below 1 or above LARGEST_SIZE.
        """
        if preset not in self.presets:
            raise SizeError(f"{self.slug} has no preset {preset!r}: choose from {', '.join(self.presets)}")
        sizes = dict(self.presets[preset])
        for name, value in (overrides or {}).items():
            if name not in sizes:
                near = difflib.get_close_matches(name, sizes, n=1, cutoff=0.5)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise SizeError(f"{self.slug} has no size {name!r}: it has {', '.join(sizes)}{hint}")
            if not 1 <= value <= LARGEST_SIZE:
                raise SizeError(f"size {name}={value}: sizes are from 1 to {LARGEST_SIZE}")
            sizes[name] = value
        return sizes

    def check_world(self, world: int) -> None:
        """Raises WorldRefused when the problem does not allow this world size."""
        if world not in self.worlds:
            reason = f" ({self.worlds_reason})" if self.worlds_reason else ""
            raise WorldRefused(f"{self.slug} does not run on {world} rank{'s' if world != 1 else ''}{reason}")

    def names(self, sizes: dict[str, int], world: int, dtype: str) -> dict[str, int | float]:
        """Everything a formula may use: sizes, W, b, and the derived sizes."""
        names: dict[str, int | float] = {**sizes, "W": world, "b": DTYPE_BYTES[dtype]}
        for name, formula in self.derived.items():
            names[name] = evaluate(formula, names)
        return names

    def cost(self, sizes: dict[str, int], world: int, dtype: str) -> Cost:
        """The least work of one call, per rank.

        Raises:
            FormulaError: a formula of problem.toml is broken.
        """
        names = self.names(sizes, world, dtype)
        cost = self.formulas
        formulas = (cost.flops, cost.local, cost.sent, cost.received or cost.sent)
        return Cost(*(float(evaluate(formula, names)) for formula in formulas))


def find_solution(source: str) -> ast.FunctionDef | None:
    """The top-level `def solution(...)` of a kernel file, or None. Raises SyntaxError."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == "solution":
            return node
    return None


def load_problem(folder: Path) -> Problem:
    """Reads and checks a problem folder (not its Python files).

    Raises:
        ProblemError: a file is missing, or problem.toml is not valid.
    """
    path, whole = folder / "problem.toml", folder.absolute()
    for name in ("problem.toml", "card.md", "inputs.py", "baseline.py"):
        if not (folder / name).is_file():
            raise ProblemError(
                f"{folder}: {name} is missing; a problem folder has problem.toml, card.md, inputs.py and baseline.py"
            )
    try:
        values = {"slug": whole.name, "category": whole.parent.name} | tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise ProblemError(f"{path}: {error}") from None
    values.setdefault("stem", f"{values.get('id')!s:0>2}_{values['slug']}")
    try:
        msgspec.convert(values, ProblemFile)
    except msgspec.ValidationError:
        raise ProblemError(f"{path}: {misfit(values, ProblemFile)}") from None
    problem = msgspec.convert(values | {"folder": folder}, Problem)
    _check(path, problem)
    return problem


def _check(path: Path, file: Problem) -> None:
    def fail(what: str) -> Any:
        raise ProblemError(f"{path}: {what}")

    if file.category not in CATEGORIES:
        fail(f"category {file.category!r}, or the name of the folder above, is not one of {', '.join(CATEGORIES)}")
    if file.class_ not in CLASSES:
        fail(f"class {file.class_!r} is not A, B, C or D")
    if not file.slug.replace("_", "").isalnum():
        fail(f"slug {file.slug!r} may only hold letters, digits and underscores")
    if file.stem != f"{file.id:02d}_{file.slug}":
        fail(f"stem {file.stem!r} should be {file.id:02d}_{file.slug}")
    if missing := [preset for preset in PRESETS if preset not in file.presets]:
        fail(f"preset {missing[0]!r} is missing; every problem has tiny, paper and production")
    names = {frozenset(sizes) for sizes in file.presets.values()}
    if len(names) != 1:
        fail("all presets must set the same size parameters")
    if unknown := [dtype for dtype in file.dtypes if dtype not in DTYPE_BYTES]:
        fail(f"unknown dtype {unknown[0]!r}")
    if not file.dtypes or not file.worlds:
        fail("dtypes and worlds must not be empty")
    if unknown := [dtype for dtype in file.check.floors if dtype not in file.dtypes]:
        fail(f"check.floors has {unknown[0]!r}, which is not one of the problem's dtypes")
    if file.check.oracle not in {"float64", "baseline"}:
        fail(f"check.oracle {file.check.oracle!r} is not float64 or baseline")
    try:
        for sizes in file.presets.values():
            file.cost(sizes, file.worlds[-1], file.dtypes[0])  # the admission test tries every world
            known = file.names(sizes, file.worlds[-1], file.dtypes[0])
            for name, formula in (file.arguments | {"capacity": file.capacity or "0"}).items():
                if not name.endswith("group"):
                    evaluate(formula, known)
    except FormulaError as error:
        fail(str(error))
