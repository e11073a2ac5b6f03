"""`--seconds` of `run`: the measuring time that the judge gets, as the scripted referee prints it."""

from functools import partial

import pytest
from click.testing import CliRunner
from scripted_referee import COMMAND

from arena.cli import run
from arena.runs.engine import Engine
from sandbox.protocol.verdict import ExitCode


@pytest.mark.parametrize(("arguments", "said"), [((), "a budget of 2.5 s"), (("--seconds", "4"), "a budget of 4 s")])
def test_budget_is_settings_or_option_s(monkeypatch, tmp_path, arguments, said):
    monkeypatch.setattr(run, "Engine", partial(Engine, command=COMMAND))
    kernel = tmp_path / "kernel.py"
    kernel.write_text("budget")
    done = CliRunner().invoke(run.run, ["13", str(kernel), "--device", "cpu", *arguments])
    assert done.exit_code == ExitCode.PASS, done.stderr
    assert said in done.stderr
    assert "✓ PASS   ▲ what both clocks say" in done.stdout
