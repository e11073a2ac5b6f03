"""Puts small mistakes into functions, one at a time, and prints those that no test finds: `make mutants ARGS="sandbox/memory"`.

mutants.toml names the tests of each folder and keeps its score. A mistake runs those that execute its line, in a fork of a pytest
process that has collected them: first its module's tests, then those that execute the fewest modules. Programs that tests start
import it from a copy of the checkout. The lines of a file of tests are recorded once, and again when it or a module changes.
Results are added to .mutants/, a file for each folder or module. The next call tries only what no earlier call has found.
"""

import argparse
import ast
import atexit
import gc
import hashlib
import json
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
import tomlkit
from coverage.numbits import numbits_to_nums

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "unit" / "mutants.toml"
PAIRS = "Lt LtE, Gt GtE, Eq NotEq, Is IsNot, In NotIn, And Or, Add Sub, Mult Div, Mod FloorDiv, BitAnd BitOr"
SWAPPED = {
    getattr(ast, a): getattr(ast, b) for pair in map(str.split, PAIRS.split(", ")) for a, b in (pair, reversed(pair))
}
OPPOSITE = {"max": "min", "min": "max", "any": "all", "all": "any"}
FORGOTTEN = {"abs", "sorted", "sqrt", "set", "list", "tuple", "reversed", "round", "max", "min"}
SYMMETRIC = {"equal", "maximum", "hypot", "same_bits", "suppress"}
"""Functions whose first two arguments may change places."""
FOLDERS = ("arena", "sandbox", "screens")
MARKS = "not long and not gpu and not problems and not further"
LINES = "select path, numbits from line_bits join file on file.id = file_id"
CHILD = """
import atexit, contextlib, os, coverage
watch = coverage.Coverage(data_file={data!r}, data_suffix=True, source={source!r}, config_file=False)
watch.set_option("run:disable_warnings", ["no-data-collected"])
@atexit.register
def save():
    with contextlib.suppress(Exception):
        watch.stop()
        watch.save()
watch.start()
end = os._exit
os._exit = lambda status: (save(), end(status))
"""
"""Records the lines of a program that a test starts, and of processes that it forks."""


def mistakes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields what somebody could have written by mistake instead of a node."""
    match node:
        case ast.Compare(left, [op], right):
            yield ast.Compare(left, [SWAPPED[type(op)]()], right)
        case ast.BinOp(left, op, right) if type(op) in SWAPPED:
            yield from (ast.BinOp(left, SWAPPED[type(op)](), right), left)
        case ast.BoolOp(op, [first, *rest]):
            yield from (ast.BoolOp(SWAPPED[type(op)](), node.values), first, rest[-1])
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield ast.Constant(value + 1 if isinstance(value, int) else value * 2 or 1.0)
        case ast.If(_, body, orelse) | ast.IfExp(_, body, orelse):
            yield from (type(node)(ast.Constant(truth), body, orelse) for truth in (True, False))
        case ast.With(items, body) if not any(item.optional_vars for item in items):
            yield ast.If(ast.Constant(True), body, [])
        case ast.Break():
            yield ast.Continue()
        case (
            ast.Expr(ast.Call() | ast.Await())
            | ast.Raise()
            | ast.AugAssign()
            | ast.Assign([ast.Attribute() | ast.Subscript()])
        ):
            yield ast.Pass()
        case ast.comprehension(target, iterated, [_, *rest], is_async):
            yield ast.comprehension(target, iterated, rest, is_async)
        case ast.Slice(lower, upper, step) if lower and upper:
            yield from (ast.Slice(None, upper, step), ast.Slice(lower, None, step))
        case ast.Call(function, [first, *rest], keywords) if not isinstance(first, ast.Starred):
            name = getattr(function, "id", getattr(function, "attr", ""))
            if name in OPPOSITE:
                yield ast.Call(ast.Name(OPPOSITE[name], ast.Load()), node.args, keywords)
            if name in FORGOTTEN:
                yield first
            elif rest and name not in SYMMETRIC | {"isinstance", "getattr"} and ast.dump(first) != ast.dump(rest[0]):
                yield ast.Call(function, [rest[0], first, *rest[1:]], keywords)
            yield from (
                ast.Call(function, node.args, [each for each in keywords if each is not gone])
                for gone in keywords
                if gone.arg != "strict"
            )


def places(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.AST, str, int | None, ast.AST, ast.AST]]:
    """Yields function, parent, field, index, node and mistake; nothing for annotations, signatures, texts and `strict`."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list") or (field == "args" and not isinstance(node, ast.Call)):
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":  # only a check of equal lengths
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr | ast.Assert):
                yield from ((function, node, field, index, child, wrong) for wrong in mistakes(child) if function)
                inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                yield from places(child, child.name if inner else function)


def wrong_module(path: Path, number: int) -> tuple[ast.Module, int, str]:
    """Returns a module with its mistake `number`, the mistake's line, and what was changed."""
    tree = ast.parse(path.read_bytes())
    function, parent, field, index, old, new = list(places(tree))[number]
    change = " -> ".join(" ".join(ast.unparse(each).split())[:90] for each in (old, new))
    ast.fix_missing_locations(ast.copy_location(new, old))
    setattr(parent, field, new) if index is None else getattr(parent, field).__setitem__(index, new)
    return tree, getattr(old, "target", old).lineno, f"{function}: {change}"


def plant(path: Path, number: int, tree: ast.Module) -> None:
    """Writes a changed module to disk, and its code into the functions that this process has imported."""
    codes, waiting = {}, [compile(tree, str(path), "exec")]
    for code in waiting:  # grows
        codes[code.co_qualname, code.co_firstlineno] = code
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename == str(path):
            each.__code__ = codes.get((each.__code__.co_qualname, each.__code__.co_firstlineno), each.__code__)
    path.write_text(ast.unparse(tree), encoding="utf-8")
    os.utime(path, (number, number))  # compiled files of other mistakes are out of date


def in_fork(work: Callable[[], Any], seconds: float) -> Any:
    """Returns what `work` returns in a process of its own; True if the process ends early or takes too long."""
    answer = Path(tempfile.mkstemp()[1])
    if not (child := os.fork()):
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            answer.write_bytes(pickle.dumps(work()))
        except Exception:
            answer.write_bytes(pickle.dumps(traceback.format_exc()))
        finally:
            os._exit(0)
    until = time.monotonic() + seconds
    while not os.waitpid(child, os.WNOHANG)[0]:
        time.sleep(0.02)
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    found = pickle.loads(answer.read_bytes() or pickle.dumps(True))
    answer.unlink()
    if isinstance(found, str):
        sys.exit(found)
    return found


class Trial:
    """A pytest plugin: tries mistakes with the tests that the session has collected."""

    def __init__(self, checkout: Path, mutants: dict[str, tuple[Path, int]], asked: argparse.Namespace) -> None:
        self.checkout, self.mutants, self.asked = checkout, mutants, asked
        self.modules = {str(path.relative_to(checkout)) for path, _ in mutants.values()}
        self.results = ROOT / ".mutants" / f"{asked.target.replace('/', '-')}.jsonl"
        self.found: dict[str, bool | None] = {}
        self.failed: set[str] = set()
        self.seconds: Counter[str] = Counter()
        self.breadth: Counter[str] = Counter()
        """Number of modules that a test executes."""
        self.killed: dict[str, set[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        self.failed |= {report.nodeid} if report.failed else set()

    def sha(self, name: str) -> str:
        path = self.checkout / name
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""

    def known(self, tests: Path) -> dict[str, Any] | None:
        """Returns what is recorded of a file of tests; None if that or a module has changed since."""
        name = str(tests.relative_to(self.checkout))
        file = ROOT / ".mutants" / "lines" / f"{name.replace('/', '-')}.json"
        found = json.loads(file.read_text()) if file.exists() else {"hashes": {name: "new"}}
        changed = any(
            self.sha(each) != found["hashes"][each] for each in {*self.modules, name} & found["hashes"].keys()
        )
        return None if changed else found["tests"]

    def record(self, tests: Path, items: list[pytest.Item]) -> None:
        """Runs the tests of a file, and writes the duration in s and the lines of those that pass."""
        data = Path(tempfile.mkdtemp()) / "data"
        code = CHILD.format(data=str(data), source=[str(self.checkout / folder) for folder in FOLDERS])
        child = self.checkout / "sitecustomize.py"
        child.write_text(code)
        own: dict[str, Any] = {}
        exec(code, own)
        watch = own["watch"]
        watch.stop()
        found: dict[str, dict[str, str]] = {item.nodeid: {} for item in items}
        for item, following in zip(items, [*items, None][1:], strict=True):
            watch.start()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            watch.stop()
            watch.save()
            lines = found[item.nodeid]
            for path in data.parent.iterdir():
                with suppress(sqlite3.Error), sqlite3.connect(path) as database:
                    for module, bits in database.execute(LINES):
                        name = str(Path(module).relative_to(self.checkout))
                        lines[name] = f"{int(lines.get(name, '0'), 16) | int.from_bytes(bits, 'little'):x}"
                path.unlink(missing_ok=True)
            watch.erase()
        child.unlink()
        passed = {name: [self.seconds[name], lines] for name, lines in found.items() if name not in self.failed}
        name = str(tests.relative_to(self.checkout))
        hashes = {each: self.sha(each) for each in {name}.union(*(lines for _, lines in passed.values()))}
        file = ROOT / ".mutants" / "lines" / f"{name.replace('/', '-')}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"hashes": hashes, "tests": passed}))

    def lines_and_times(self, items: list[pytest.Item]) -> tuple[dict[str, dict[int, list[str]]], dict[str, float]]:
        """Returns the tests that execute each line of each module, and each passing test's duration in s."""
        lines: dict[str, dict[int, list[str]]] = {module: {} for module in self.modules}
        times: dict[str, float] = {}
        for path in sorted({item.path for item in items}):
            if (found := self.known(path)) is None:
                in_fork(partial(self.record, path, [each for each in items if each.path == path]), 3600)
            for test, (seconds, modules) in (found or self.known(path) or {}).items():
                times[test], self.breadth[test] = seconds, len(modules)
                for module in modules.keys() & self.modules:
                    bits = int(modules[module], 16)
                    for line in numbits_to_nums(bits.to_bytes(bits.bit_length() // 8 + 1, "little")):
                        lines[module].setdefault(line, []).append(test)
        return lines, times

    def finds(self, items: list[pytest.Item]) -> list[str]:
        """Runs tests until one fails, or all of them for the matrix. Returns those that have failed."""
        for item, following in zip(items, [*items, None][1:], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed and not self.asked.matrix:
                break
        return sorted(self.failed)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.unfreeze()
        items = {item.nodeid: item for item in session.items}
        lines, times = self.lines_and_times(session.items)
        slow = {name for name, item in items.items() if item.get_closest_marker("slow")}
        for place, (path, number) in self.mutants.items():
            right = path.read_bytes()
            tree, line, _ = wrong_module(path, number)
            own = f"/test_{path.stem}.py"
            # A world in a jail records no lines, and neither does a process that joins one.
            here = {*(lines[str(path.relative_to(self.checkout))].get(line) or slow)}
            here |= {name for name in items if own in name}
            tests = sorted(times.keys() & here, key=lambda name: (own not in name, self.breadth[name], times[name]))
            while sum(times[name] for name in tests) > self.asked.seconds and len(tests) > 1:
                tests.pop()
            seconds = 20 + 5 * sum(times[name] for name in tests)
            work = partial(self.planted, path, number, tree, [items[name] for name in tests])
            if not self.found and in_fork(partial(work.func, path, 0, ast.parse(right), work.args[3]), seconds):
                sys.exit(f"tests fail with an unchanged {path}")
            path.write_bytes(right)
            killers = in_fork(work, seconds)
            path.write_bytes(right)
            self.found[place] = None if killers is None else bool(killers)
            with self.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"place": place, "found": self.found[place]}) + "\n")
            if self.found[place] is False:
                print(f"{len(tests)} of {len(here)} tests miss {place}", flush=True)
            for name in tests:
                self.killed.setdefault(name, set()).update(
                    {place} if killers is True or name in (killers or ()) else ()
                )
        if self.asked.matrix:
            known: set[str] = set()
            for name in sorted(self.killed, key=times.__getitem__):
                if self.killed[name] <= known:
                    print(f"{times[name]:.2f} s, {len(self.killed[name])} found, all by faster tests: {name}")
                known |= self.killed[name]
        return True

    def planted(self, path: Path, number: int, tree: ast.Module, items: list[pytest.Item]) -> list[str] | None:
        """Plants a mistake and returns the tests that find it; None if it cannot be planted."""
        try:
            plant(path, number, tree)
        except ValueError:  # a function that exists cannot have other free variables
            return None
        with suppress(Exception):  # pytest itself may fail, as when it shows an endless recursion
            return self.finds(items)
        return ["pytest"]


def copied_checkout() -> Path:
    """Copies what git tracks, because mistakes are written into modules."""
    copy = Path(tempfile.mkdtemp(dir=ROOT / ".mutants"))
    atexit.register(shutil.rmtree, copy)
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    return copy


def tried_sample(asked: argparse.Namespace, row: Any, equivalent: set[str]) -> dict[str, bool]:
    """Tries the sampled mistakes that no earlier call found. Returns for each by place and change whether it is found."""
    (ROOT / ".mutants").mkdir(exist_ok=True)
    copy = copied_checkout()
    os.chdir(copy)
    os.environ["OMP_NUM_THREADS"] = "1"  # a fork has no other threads of torch
    sys.path[:0] = [str(copy)]
    target = copy / asked.target
    modules = sorted(target.rglob("*.py")) if target.is_dir() else [target]
    only, left_out = tuple(row.get("only", ("",))), tuple(row.get("left_out", ("none",)))
    names = {path: str(path.relative_to(copy)) for path in modules}
    modules = [path for path in modules if names[path].startswith(only) and not names[path].startswith(left_out)]
    chosen = [(path, number) for path in modules for number, _ in enumerate(places(ast.parse(path.read_bytes())))]
    # Drawn by name and number, so that a change of one module draws no others from the rest.
    chosen.sort(key=lambda each: hashlib.sha256(f"{asked.seed} {each[0].name} {each[1]}".encode()).digest())
    sample = {}
    for path, number in chosen[: asked.sample]:
        _, line, change = wrong_module(path, number)
        sample[f"{path.relative_to(copy)}:{line} {change}"] = (path, number)
    sample = {place: mutant for place, mutant in sample.items() if place.split(" ", 1)[1] not in equivalent}
    results = ROOT / ".mutants" / f"{asked.target.replace('/', '-')}.jsonl"
    results.touch()
    known = {each["place"]: each["found"] for each in map(json.loads, results.read_text().splitlines())}
    if asked.matrix:
        known = {}
    if missing := {place: mutant for place, mutant in sample.items() if known.get(place, False) is False}:
        trial = Trial(copy, missing, asked)
        options = ["-q", "-s", "-p", "no:cacheprovider", "--timeout", "200", "-m", MARKS]
        pytest.main([*options, *(asked.tests or row["tests"])], plugins=[trial])
        known |= trial.found
    return {place: known[place] for place in sample if known.get(place) is not None}


def main() -> None:
    """Tries a random sample of the mistakes of a folder or a module, and prints the score."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("target", help="a folder of mutants.toml, or a module in one")
    parser.add_argument("--sample", type=int, default=50, help="the number of mistakes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60, help="a mistake's tests in s, the fastest first")
    parser.add_argument("--tests", nargs="+", help="files and folders of tests, instead of those in mutants.toml")
    parser.add_argument("--matrix", action="store_true", help="print the tests that find nothing a faster one does not")
    parser.add_argument("--write", action="store_true", help="record the score in mutants.toml")
    asked = parser.parse_args()
    table = tomlkit.parse(TABLE.read_text(encoding="utf-8"))
    folder = max((each for each in table["folders"] if asked.target.startswith(each)), key=len)
    row = table["folders"][folder]
    tried = tried_sample(asked, row, set(table["equivalent"]))
    score = sum(tried.values()) / len(tried)
    print(f"{asked.target}: {sum(tried.values())} of {len(tried)} mistakes found, {score:.0%}")
    if score < row["floor"]:
        sys.exit(f"below the floor of {row['floor']:.0%} in {TABLE.name}")
    if asked.write:
        name = "score" if asked.seed == 1 else f"seed_{asked.seed}"
        row[name] = tomlkit.inline_table()
        row[name].update(found=sum(tried.values()), tried=len(tried), sample=asked.sample, seed=asked.seed)
        TABLE.write_text(tomlkit.dumps(table), encoding="utf-8")


if __name__ == "__main__":
    main()
