"""The table of backends: it is complete, every part that offers backends uses it, and unsupported ones are refused."""

import importlib.util
from pathlib import Path

import msgspec
import pytest

import sandbox.kit.templates
from arena.models.conversation import read_template
from arena.paths import paths_in
from arena.players.prompt import build_prompt
from arena.players.tools import PAGES
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.workspace.kit_names import MODULES
from problems.catalogue import load_catalogue
from sandbox.machine.backends import BACKENDS, Backend, backend_names, named, refusal, used
from sandbox.protocol.events import Contender, Run, Setting
from sandbox.protocol.kernel_files import Kernel
from sandbox.referee.awaiting import SettingRefused
from sandbox.referee.labels import backends_of, labels
from sandbox.referee.run_request import backend_failure

CATALOGUE = load_catalogue()
BASELINE = CATALOGUE.find("1").baseline_source
IDS = {"argvalues": BACKENDS, "ids": backend_names()}


def run(source: str, device: str = "cuda", world: int = 2, rival: str | None = None) -> Run:
    setting = Setting(problem_dir="", preset="tiny", sizes={}, world=world, device=device, dtype="float32")
    versus = Contender("rival.py", rival) if rival is not None else None
    return Run(run_id="1", setting=setting, kernel_name="k.py", source=source, versus=versus)


@pytest.mark.parametrize("backend", **IDS)
def test_backend_has_all_that_its_name_stands_for(backend: Backend) -> None:
    assert named(backend.name) is backend
    assert backend.name in sandbox.kit.templates.names()
    assert backend.name in PAGES
    assert len(read_template(f"kit_{backend.name}")) > 200
    assert backend.availability().found
    for module in backend.modules:
        if module.startswith("sandbox.kit."):
            name = module.removeprefix("sandbox.kit.")
            assert name in MODULES
            assert importlib.util.find_spec(module)


@pytest.mark.parametrize("backend", **IDS)
def test_starter_has_label_and_fails_where_unsupported(backend: Backend) -> None:
    text = sandbox.kit.templates.fill(backend.name, "1 · Sum", "solution(tensor)", BASELINE)
    assert backend.label in labels(Kernel(text))
    assert backend_failure(run(text)) is None
    for wrong in (run(text, "cpu", 2), run(text, "cuda", 1)):
        failure = backend_failure(wrong)
        assert backend.title in failure.message
        assert "\n" not in failure.message
        assert "--device cuda" in failure.advice
    with pytest.raises(SettingRefused, match=backend.title):
        backend_failure(run("", "cpu", 2, rival=text))


def test_only_certain_imports_are_refused() -> None:
    within = "def solution(x):\n    from sandbox.kit import nccl\n    return x\n"
    assert backends_of(Kernel(within)) == []
    assert [each.name for each in backends_of(Kernel(within), anywhere=True)] == ["nccl"]
    assert "nccl device" in labels(Kernel(within))
    assert [each.name for each in backends_of(Kernel("", {"ops.py": b"from sandbox.kit import nccl, cuda\n"}))] == [
        "nccl"
    ]
    assert not used(["sandbox.kit.nccl_like", "sandbox.kit"])


def test_prompt_has_backend_if_it_was_asked_for(tmp_path: Path) -> None:
    problem = CATALOGUE.find("1")
    setting = choose_setting(problem, Choice(device="cpu"), Settings())
    on_gpus = msgspec.structs.replace(setting, device="cuda")
    page = read_template("kit_nccl")
    paths = paths_in(tmp_path)
    for backend in (None, "nccl"):
        text = str(build_prompt(problem, on_gpus, CATALOGUE, paths, backend=backend))
        assert (page in text) == (backend is not None)


def test_a_refusal_names_the_backend_and_the_reason() -> None:
    assert "CPU ranks" in refusal(BACKENDS[0], "cpu", 4)
    assert "one rank" in refusal(BACKENDS[0], "cuda", 1)
    assert refusal(BACKENDS[0], "cuda", 2) == ""
