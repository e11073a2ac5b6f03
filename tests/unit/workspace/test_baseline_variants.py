"""Baseline variants: sources that are whole kernels for every problem, and which calls share a CUDA graph."""

import ast
import builtins
import contextlib
import types

import pytest
import torch

from arena.errors import UsageError
from arena.workspace.named_kernels import COPY_ENGINE, GRAPH, WINDOWS, has_variant, variant_source
from problems.catalogue import load_catalogue
from sandbox.baseline_variants import graph_text

PROBLEMS = load_catalogue().problems
IDS = [problem.slug for problem in PROBLEMS]


def _bound(tree: ast.Module) -> list[str]:
    """Returns the names that a module binds, except by imports."""
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    return names


@pytest.mark.problems
@pytest.mark.parametrize("problem", PROBLEMS, ids=IDS)
def test_graph_of_every_baseline_is_sound_kernel(problem):
    text = variant_source(problem, GRAPH, "cuda")
    tree = ast.parse(text)
    assert f"{problem.id} · {problem.title}" in (ast.get_docstring(tree) or "")
    assert not [word for word in ("__PROBLEM__", "__BASELINE__", "__future__") if word in text]
    names = _bound(tree)
    assert sorted({name for name in names if names.count(name) > 1}) == ["solution"]
    # The baseline never refers to its own `solution`, because the variant's `solution` replaces it.
    assert not [
        n for n in ast.walk(ast.parse(problem.baseline_source)) if isinstance(n, ast.Name) and n.id == "solution"
    ]


def test_windows_cover_four_collectives_and_copy_engines_two():
    assert [problem.id for problem in PROBLEMS if has_variant(problem, WINDOWS)] == [1, 2, 7, 8]
    assert [problem.id for problem in PROBLEMS if has_variant(problem, COPY_ENGINE)] == [2, 8]
    assert all(has_variant(problem, GRAPH) for problem in PROBLEMS)
    for problem in PROBLEMS:
        for word in (WINDOWS, COPY_ENGINE):
            if not has_variant(problem, word):
                with pytest.raises(UsageError, match=f"no {word} for {problem.id} {problem.slug}"):
                    variant_source(problem, word, "cuda")


@pytest.mark.parametrize(("number", "word", "collective"), [(1, WINDOWS, "all_reduce"), (8, COPY_ENGINE, "all_to_all")])
def test_a_windows_text_knows_its_collective(number, word, collective):
    tree = ast.parse(variant_source(load_catalogue().find(str(number)), word, "cuda"))
    fixed = {
        node.target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant)
    }
    assert fixed == {"COLLECTIVE": collective, "COPY_ENGINE": word == COPY_ENGINE}


class FakeGraph:
    """A graph that records nothing: it checks the capture mode and counts replays."""

    def capture_begin(self, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"

    def capture_end(self) -> None:
        self.ended = True

    def replay(self) -> None:
        self.replays = getattr(self, "replays", 0) + 1


@pytest.fixture
def recorder(monkeypatch):
    """recorder(baseline source): the names in the graph variant's module, with the GPU's part replaced."""
    monkeypatch.setattr(torch.cuda, "Stream", object)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())

    def make(baseline: str) -> types.SimpleNamespace:
        names: dict = {"__name__": "kernel", "__builtins__": builtins}
        exec(graph_text("99 · Example", baseline), names)
        return types.SimpleNamespace(**names)

    return make


def test_call_is_plain_once_and_replayed_afterwards(recorder):
    kernel = recorder("made = []\n\ndef solution(x, scale):\n    made.append(x * scale)\n    return made[-1]\n")
    first, again = kernel.solution(torch.ones(2), 3), kernel.solution(torch.ones(2), 3)
    assert [len(kernel.made), first.tolist()] == [2, [3, 3]]  # the call itself, and its recording
    assert first is kernel.made[0]
    assert again is kernel.made[1]  # the output that the recording fills
    kernel.solution(torch.ones(2), 4)
    assert len(kernel.made) == 4  # another scalar is another call
    ((graph, _), _) = kernel.record.recordings.values()
    assert (graph.ended, graph.replays) == (True, 1)


def test_only_so_many_recordings_are_kept(recorder):
    kernel = recorder("def solution(x, scale):\n    return x * scale\n")
    kernel.record.KEPT = 3
    for scale in range(5):
        kernel.solution(torch.ones(1), scale)
    assert len(kernel.record.recordings) == 3


def test_what_cannot_be_captured_is_one_clear_error(recorder):
    text = "calls = []\n\ndef solution(x):\n    calls.append(1)\n    if len(calls) > 1:\n"
    kernel = recorder(text + "        raise RuntimeError('CUDA error: not permitted\\nlong story')\n    return x + 1\n")
    with pytest.raises(RuntimeError, match=r"^cannot be captured in a CUDA graph: CUDA error: not permitted$"):
        kernel.solution(torch.ones(1))


def test_recordings_are_keyed_by_all_they_fix(recorder):
    key = recorder("def solution(x):\n    return x\n").record.key
    x = torch.arange(6)
    linear = torch.nn.Linear(2, 2)
    same = [(x, 1), [x, {"a": 1.5}], linear, torch.float32, None, torch.eye(3).to_sparse()]
    assert all(key(value) == key(value) for value in same)
    assert key(x) == key(x.clone())  # the values of a host tensor are part of its key
    different = [x, x + 1, x.view(2, 3), x.int(), [x], (x,), {"a": x}, {"b": x}, 1, 1.0, True, "1", None]
    different += [linear, torch.nn.Linear(2, 2), torch.eye(3).to_sparse(), (2 * torch.eye(3)).to_sparse()]
    assert len({key(value) for value in different}) == len(different)
    with pytest.raises(TypeError, match="of type object cannot be recognised"):
        key([object()])
