"""`run`, `watch` and `replay` on real ranks: verdicts, exit codes, interruption, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from forked_programs import COMMAND_LINE, CommandLine, answer_of
from scripted_referee import COMMAND
from waiting import PATIENCE_S

from problems.catalogue import load_catalogue

pytestmark = pytest.mark.slow

FIELDS = (
    "run_id problem id category created player kernel kernel_name code sha256 machine device world dtype preset preset_sizes "
    "sizes versus origin other_than beside labels verdict detail failure paper_rule error outcome speedup clock told advice "
    "rounds baseline_us contender_us roofline seconds jail sealed"
)
CHECKED = ("--device", "cpu", "--preset", "tiny", "--world", "2", "--rounds", "0")
"""Options without timing, for tests of what a run shows or leaves before it."""
ROOT = Path(__file__).parents[3]
SCRIPTED = {"PKB_TEST_REFEREE": json.dumps(COMMAND), "PROGRAM": COMMAND_LINE}
"""Variables of a shell in which `python -c "$PROGRAM"` is the command line with the scripted referee."""


@pytest.fixture
def source() -> str:
    return load_catalogue().find("13").baseline_source


@pytest.fixture
def kernel(tmp_path: Path, source: str) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text(source)
    return path


def start(*arguments: str, cwd: Path, scripted: bool = False) -> "subprocess.Popen[str]":
    program = ["-c", COMMAND_LINE] if scripted else ["-P", "-m", "arena.cli"]
    return subprocess.Popen(
        [sys.executable, *program, *arguments],
        cwd=cwd,
        env={**os.environ, **(SCRIPTED if scripted else {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until_it_runs(process: "subprocess.Popen[str]") -> None:
    """Waits until the kernel has been loaded; what takes long from then on is its first call."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("load"):
            return
    raise AssertionError("the kernel was never loaded")


@pytest.fixture
def gone() -> Iterator[Callable[[psutil.Process], list[psutil.Process]]]:
    """gone(process): notes and returns its descendants. All of them must end within 30 s of the test."""
    noted: list[psutil.Process] = []

    def note(process: psutil.Process) -> list[psutil.Process]:
        found: list[psutil.Process] = process.children(recursive=True)
        noted.extend(found)
        return found

    yield note
    _, alive = psutil.wait_procs(noted, timeout=PATIENCE_S)
    for process in alive:
        process.kill()
    assert not alive


def test_baseline_passes_against_itself_and_replays(pkb_arena: CommandLine, home: Path, shared_referee: Any) -> None:
    done = pkb_arena("run", "13", "baseline", *CHECKED, "--json", PKB_TEST_REFEREE=json.dumps(shared_referee.command))
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    said = json.loads(line)
    assert set(said) == set(FIELDS.split())
    assert (said["verdict"], said["id"], said["problem"], said["kernel"]) == ("PASS", 13, "gemm_allreduce", "baseline")
    assert (said["world"], said["device"], said["preset"], said["dtype"]) == (2, "cpu", "tiny", "bfloat16")
    assert (said["speedup"], said["failure"]) == (None, None)
    assert "check" in done.stderr  # progress goes to stderr
    assert "\x1b" not in done.stdout + done.stderr
    told = pkb_arena("replay", "last", "--json").stdout.splitlines()
    assert json.loads(told[0])["run_id"] == said["run_id"]
    assert json.loads(told[-1])["result"]["verdict"] == "PASS"
    (row,) = (row for row in json.loads(pkb_arena("list", "--json").stdout) if row["id"] == 13)
    assert not row["solved"]  # running the baseline solves nothing


def test_a_kernel_runs_against_another(pkb_arena_scripted: CommandLine, kernel: Path) -> None:
    kernel.write_text("pass")
    said = answer_of(pkb_arena_scripted("run", "13", "kernel.py", "--against", "house", *CHECKED[:-1], "1", "--json"))
    assert (said["verdict"], said["rival"]["verdict"], said["versus"]) == ("PASS", "PASS", "house.py")
    assert said["speedup"]["call"] == {"median": 1.5, "low": 1.4, "high": 1.6}


def test_ctrl_c_ends_everything_with_130(
    tmp_path: Path, kernel: Path, source: str, gone: Callable[[psutil.Process], list[psutil.Process]]
) -> None:
    kernel.write_text(source.replace("return product", "while True: pass"))
    process = start("run", "13", "kernel.py", *CHECKED, "--json", cwd=tmp_path)
    until_it_runs(process)
    assert len(gone(psutil.Process(process.pid))) >= 4  # referee, two worlds, ranks
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert stdout == ""
    assert "Traceback" not in stderr


def test_watch_judges_every_save_and_exits_130(
    tmp_path: Path, pkb_arena: CommandLine, kernel: Path, gone: Callable[[psutil.Process], list[psutil.Process]]
) -> None:
    kernel.write_text("pass")
    process = start("watch", "13", "kernel.py", *CHECKED, "--json", cwd=tmp_path, scripted=True)
    assert process.stdout is not None

    def judged(text: str) -> Any:
        other = kernel.with_name("other.py")
        other.write_text(text)
        os.replace(other, kernel)
        return json.loads(process.stdout.readline())

    try:
        assert json.loads(process.stdout.readline())["verdict"] == "PASS"
        assert judged("wrong")["verdict"] == "WRONG_RESULT"
        kernel.write_text("pass\n# better\n")
        assert json.loads(process.stdout.readline())["verdict"] == "PASS"
        gone(psutil.Process(process.pid))
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    (row,) = (row for row in json.loads(pkb_arena("list", "--json").stdout) if row["id"] == 13)
    assert row["solved"]


def test_watch_ends_when_nobody_reads_it(tmp_path: Path, kernel: Path) -> None:
    kernel.write_text("pass")
    process = start("watch", "13", "kernel.py", *CHECKED, "--json", cwd=tmp_path, scripted=True)
    process.stdout.close()
    assert process.wait(timeout=PATIENCE_S) == 0
    assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize(("given", "said"), [((), "a budget of 2.5 s"), (("--seconds", "4"), "a budget of 4 s")])
def test_budget_is_settings_or_option_s(
    pkb_arena_scripted: CommandLine, kernel: Path, given: tuple[str, ...], said: str
) -> None:
    kernel.write_text("budget")
    done = pkb_arena_scripted("run", "13", "kernel.py", "--device", "cpu", *given)
    assert done.returncode == 0, done.stderr
    assert said in done.stderr
    assert "✓ PASS   ▲ what both clocks say" in done.stdout


def test_calibrate_prints_and_stores_the_peaks(pkb_arena_scripted: CommandLine, home: Path) -> None:
    done = pkb_arena_scripted("calibrate", "--device", "cpu", "--world", "2")
    assert done.returncode == 0, done.stderr
    assert "2.00 GB/s" in done.stdout
    assert json.loads((home / "state" / "calibrations" / "cpu-2.json").read_text())["peaks"] == {"local": 2e9}


def test_sizes_that_differ_from_the_preset_are_shown(pkb_arena_scripted: CommandLine) -> None:
    done = pkb_arena_scripted("run", "1", "baseline", *CHECKED, "--size", "M=7", "--size", "N=3")
    line = "1 allreduce · tiny M=7 N=3 · bfloat16 · world 2 · cpu"
    assert line in done.stdout.splitlines()
    assert line in pkb_arena_scripted("replay", "last").stdout.splitlines()


def test_a_reader_that_leaves_changes_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("wrong")
    command = f'"{sys.executable}" -c "$PROGRAM" run 1 k.py {" ".join(CHECKED)}'
    script = f'{command} 2>/dev/null | true; exit "${{PIPESTATUS[0]}}"'
    environment = os.environ | SCRIPTED
    assert subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, check=False).returncode == 1


def test_a_torch_that_does_not_load_is_named(pkb_arena: CommandLine, tmp_path: Path, kernel: Path) -> None:
    why = "ImportError: Failed to load extensions: or run Python elsewhere."
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(f'raise ImportError("""{why[13:]}""")'.replace(": ", ":\n    "))
    broken = {"PYTHONPATH": str(tmp_path)}
    done = pkb_arena("run", "13", str(kernel), *CHECKED, **broken)
    assert done.returncode == 3
    assert f"torch does not load: {why}" in done.stdout
    found = json.loads(pkb_arena("doctor", "--json", **broken).stdout)
    assert any(f"does not load: {why}" in str(finding) for finding in found["findings"])


@pytest.mark.parametrize(
    ("limits", "status", "words"),
    [
        pytest.param("umask 777; trap '' CHLD", 0, "PASS", marks=pytest.mark.further),
        ("ulimit -f 100", 3, "Start pkb-arena in a shell with higher limits (ulimit): FSIZE is 102400."),
        pytest.param("ulimit -v 524288", 3, "higher limits (ulimit): AS is 536870912.", marks=pytest.mark.further),
        pytest.param("ulimit -n 24", 3, "Too many open files. Start pkb-arena in a shell", marks=pytest.mark.further),
    ],
)
def test_odd_limits_of_a_shell(limits: str, status: int, words: str, tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "screens.main", "run", "1", "baseline", *CHECKED]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    shell = ["bash", "-c", f'{limits}; exec "$@"', "bash", *command]
    done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert words in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
