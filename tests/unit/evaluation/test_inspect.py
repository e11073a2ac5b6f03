"""The Inspect task with Inspect's own runner and its stand-in for a model. Needs the extra `inspect`."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scripted_referee import COMMAND as SCRIPTED

import arena.api
from arena.errors import UsageError
from arena.export.bundle import import_inspect_log
from arena.paths import Paths
from arena.runs.engine import Engine
from arena.sweep.journal import read_lines
from arena.sweep.records import NO_KERNEL, CellResult
from problems.catalogue import load_catalogue

inspect_ai = pytest.importorskip("inspect_ai")
models = pytest.importorskip("inspect_ai.model")
pytestmark = pytest.mark.filterwarnings("ignore::Warning")  # of the framework

RIGHT = "pass\ndef solution(tensor):\n    return tensor\n"
WRONG = RIGHT.replace("pass", "wrong", 1)


@pytest.fixture
def evaluate(paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """evaluate(outputs, **parameters): the log, judged by the scripted referee."""
    from pkb_arena.inspect_task import pkb

    monkeypatch.setattr(arena.api, "Engine", partial(Engine, command=SCRIPTED))

    def run(outputs: list[Any], **parameters: Any) -> Any:
        for output in outputs:
            output.usage = models.ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        model = models.get_model("mockllm/model", custom_outputs=outputs, memoize=False)
        task = pkb(problems="1,2", device="cpu", world=2, unsafe=True, **parameters)
        (log,) = inspect_ai.eval(task, model=model, log_dir=str(tmp_path), display="none", max_samples=1)
        assert log.status == "success", log.error
        return log

    return run


def _says(text: str, stop_reason: str = "stop") -> Any:
    return models.ModelOutput.from_content("mockllm/model", text, stop_reason=stop_reason)


def test_category_and_class_narrow_the_problems(paths: Paths) -> None:
    from pkb_arena.inspect_task import pkb

    (sample,) = pkb(problems="1-12", category="tensor", problem_class="B", device="cpu").dataset
    assert sample.metadata["id"] == 9
    with pytest.raises(UsageError, match="no problem is in category"):
        pkb(problems="1", category="tensor", device="cpu")


def test_one_answer_is_judged(evaluate: Any) -> None:
    answers = [_says(f"```python\n{RIGHT}```"), _says("no kernel")]
    right, none = (sample.scores["verdict"] for sample in evaluate(answers).samples)
    assert (right.value["correct"], right.value["speedup"], right.metadata["player"]) == (1, 1.5, "model:mockllm/model")
    assert (none.value["correct"], none.explanation) == (0, "the answer has no code: no kernel")


def test_declined_or_cut_off_answer_has_no_kernel(evaluate: Any) -> None:
    answers = [_says(f"```python\n{RIGHT}", reason) for reason in ("content_filter", "max_tokens")]
    scores = [sample.scores["verdict"] for sample in evaluate(answers).samples]
    found = [(score.value["correct"], score.explanation) for score in scores]
    assert found == [(0, "the model declined"), (0, "the answer was cut off")]


def test_the_best_kernel_of_an_agent_counts(evaluate: Any) -> None:
    def run(source: str) -> Any:
        return models.ModelOutput.for_tool_call("mockllm/model", "run", {"source": source})

    done = _says("done")
    samples = evaluate([run(RIGHT), run(WRONG), run(RIGHT), done, run(WRONG), done], agent=True, steps=2).samples
    assert [sample.scores["verdict"].value["correct"] for sample in samples] == [1, 0]
    said = [message.text for message in samples[0].messages if message.role == "tool"]
    assert "Attempts left: 1." in said[0]
    assert "No attempts are left" in said[2] or "No attempts are left" in str(samples[0].messages[-2].error)
    last = _says(f"```python\n{RIGHT}```")
    samples = evaluate([run(WRONG), last, run(WRONG), run(WRONG), last], agent=True, steps=2).samples
    assert [sample.scores["verdict"].value["correct"] for sample in samples] == [1, 0]  # the second has no attempt left


def test_a_log_is_imported_onto_the_board(evaluate: Any, paths: Paths) -> None:
    log = evaluate([_says(f"```python\n{RIGHT}```"), _says("no kernel")])
    catalogue = load_catalogue()
    (name,), results = import_inspect_log(paths, catalogue, Path(log.location))
    lines = [line for line in read_lines(paths.imports / f"{name}.jsonl") if isinstance(line, CellResult)]
    assert (results, [line.verdict for line in lines]) == (2, ["PASS", NO_KERNEL])
    assert {line.cell.player for line in lines} == {"model:mockllm/model"}
    with pytest.raises(UsageError, match="no log of Inspect"):
        import_inspect_log(paths, catalogue, Path(__file__))
