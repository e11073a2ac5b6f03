"""The command line before anything runs: what it lists, and one clear message and code for each bad input."""

import json
import os
import pty
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from forked_programs import COMMAND_LINE, CommandLine, fails
from scripted_referee import COMMAND
from stored_runs import ran
from waiting import PATIENCE_S

import benchmarks.__main__
from arena.cli import exit_code_of
from arena.machine.facts import visible_gpus
from arena.paths import Paths, paths_in
from arena.settings import ModelSettings, Settings, save_settings
from benchmarks.__main__ import PROGRAM
from problems.catalogue import load_catalogue
from sandbox.protocol.verdict import ExitCode

pytestmark = pytest.mark.slow


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text(load_catalogue().find("13").baseline_source)
    return path


def set_up(home: Path, settings: bytes) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "settings.toml").write_bytes(settings)


def test_list_shows_every_problem_in_straight_columns(started_anew: CommandLine) -> None:
    done = started_anew("list")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line for line in done.stdout.splitlines() if line.startswith("  ")]
    titles = {f"{problem.id:>3}  {problem.slug} ": problem.title for problem in load_catalogue().problems}
    columns = [line.index(titles[start]) for line in lines for start in titles if line[2:].startswith(start)]
    assert len(lines) == len(titles) == len(columns)
    assert len(set(columns)) == 1


def test_list_json_is_one_array_with_every_field(pkb_arena: CommandLine, home: Path) -> None:
    rows = json.loads(pkb_arena("list", "--json").stdout)
    problems = load_catalogue().problems
    assert {row["id"] for row in rows} == {problem.id for problem in problems}
    row = next(row for row in rows if row["id"] == 13)
    assert (row["slug"], row["stem"], row["class"]) == ("gemm_allreduce", "13_gemm_allreduce", "C")
    assert {"title", "category", "domain", "collectives", "worlds", "dtypes", "presets"} <= set(row)
    assert (row["best"], row["solved"]) == (None, False)
    assert not home.exists()  # listing creates no files


@pytest.mark.parametrize("name", ["gemm_allreduce", "13_gemm_allreduce"])
def test_show_has_card_signature_and_baseline(pkb_arena: CommandLine, name: str) -> None:
    problem = load_catalogue().find("13")
    shown = pkb_arena("show", name).stdout
    assert "def solution(A_local, B_local)" in shown
    assert f"worlds {', '.join(map(str, problem.worlds))} · dtypes bfloat16" in shown
    assert problem.baseline_source.strip() in shown
    said = json.loads(pkb_arena("show", name, "--json").stdout)
    assert (said["card"], said["baseline"]) == (problem.card, problem.baseline_source)
    assert pkb_arena("show", name, "--house").stdout == problem.house_source


def test_duel_is_replayed_by_name_of_its_file(pkb_arena: CommandLine, home: Path) -> None:
    """The journal may be renamed, or come from another user."""
    duels = home / "data" / "duels"
    duels.mkdir(parents=True)
    recording = Path(__file__).parents[2] / "ui" / "recordings" / "duel.jsonl"
    (duels / "from-a-friend.jsonl").write_bytes(recording.read_bytes())
    assert "`pkb-arena replay from-a-friend`" in pkb_arena("duels").stdout
    told = pkb_arena("replay", "from-a-friend")
    assert told.returncode == 0
    assert "a draw" in told.stdout


def test_new_writes_a_starter_once(pkb_arena: CommandLine, tmp_path: Path) -> None:
    done = pkb_arena("new", "13", "-o", "mine.py")
    assert (done.returncode, done.stdout) == (0, "mine.py\n")
    (tmp_path / "mine.py").write_text("work of hours")
    fails(pkb_arena("new", "13", "-o", "mine.py"), 2, "--force")
    assert pkb_arena("new", "13", "-o", "two_shot/").stdout == "two_shot/kernel.py\n"
    assert (tmp_path / "mine.py").read_text() == "work of hours"


def test_new_names_what_cannot_be_written(pkb_arena: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.py").symlink_to(tmp_path / "gone" / "kernel.py")
    for more in ((), ("--force",)):
        fails(pkb_arena("new", "13", "-o", "folder", *more), 2, "folder is a folder", "-o folder/kernel.py")
    fails(pkb_arena("new", "13", "-o", "link.py"), 3, f"cannot write to {tmp_path / 'gone'}: No such file")


@pytest.mark.skipif(visible_gpus() > 0, reason="this machine has GPUs")
@pytest.mark.parametrize("template", ["cuda", "cpp"])
def test_new_says_first_that_a_template_needs_gpus(pkb_arena: CommandLine, template: str) -> None:
    said = pkb_arena("new", "1", "--template", template).stderr.splitlines()[0]
    note = f"{template} kernels need GPUs, and this machine has none; --template cpp is for CPU ranks"
    assert (said == note) is (template != "cpp")


def test_new_without_a_file_writes_into_the_workspace(pkb_arena: CommandLine, home: Path) -> None:
    path = Path(pkb_arena("new", "13").stdout.strip())
    assert path.is_relative_to(home / "data" / "workspace")
    assert path.read_text() == load_catalogue().find("13").baseline_source
    assert str(path) in pkb_arena("run", "13").stderr


ALLREDUCE = str(load_catalogue().find("1").folder)
BAD_USAGE = [
    (["run", "gemm_alreduce", "kernel.py"], ["gemm_alreduce", "gemm_allreduce"]),
    (["run", "99", "kernel.py"], ["there is no problem '99'", "ids go from 1 to 87"]),
    (["run", "gem", "kernel.py"], ["gemm_allgather", "gemm_allreduce"]),
    (["gem"], ["no command and no problem 'gem'", "gemm_allreduce"]),
    (["replya"], ["no problem 'replya'", "`pkb-arena replay`"]),
    (["13"], ["needs a terminal"]),
    (["13", "nowhere.py"], ["there is no kernel file nowhere.py", "pkb-arena new PROBLEM -o nowhere.py"]),
    (["13", ".."], ["has no kernel.py"]),
    (["13", "kernel.py", "more.py"], ["unexpected extra argument"]),
    (["replay", "nothing"], ["no run, duel or trace 'nothing'", "nothing was run yet"]),
    (["replay", "kernel.py"], ["kernel.py", "name the journal"]),
    (["run", "13"], ["KERNEL is missing", "`pkb-arena new 13`"]),
    (["run", "13", "nowhere.py"], ["nowhere.py"]),
    (["run", "13", "kernel.py", "--dtype", "float3"], ["float3", "bfloat16"]),
    (["run", "13", "kernel.py", "--size", "Q=4"], ["'Q'"]),
    (["run", "13", "kernel.py", "--size", "M=many"], ["many", "whole number"]),
    (["run", "13", "kernel.py", "--size", "M"], ["NAME=VALUE"]),
    (["run", "13", "kernel.py", "--size", "M=0"], ["M=0"]),
    (["run", "13", "kernel.py", "--preset", "huge"], ["huge", "tiny"]),
    (["run", "13", "kernel.py", "--world", "0"], ["'--world': 0 is not from 1 to 64"]),
    (["run", "13", "kernel.py", "--world", "two"], ["'two' is not a valid integer"]),
    (["run", "13", "baseline-grph"], ["baseline-grph", "`baseline` and `house`"]),
    (["sweep", "--players", ""], ["names nobody"]),
    (["demo"], ["terminal"]),
    (["check-problem"], ["name one problem folder, or say --all"]),
    (["check-problem", ALLREDUCE, "--all"], ["name one problem folder, or say --all"]),
    (
        ["check-problem", ALLREDUCE, "--world", "two"],
        ["--world 'two': world sizes are numbers with commas between them"],
    ),
    (["recheck", "--by", "anna"], ["--by"]),
    (["sweep", "--resume"], ["no sweep to resume"]),
    (["sweep", "--resume", "--name", "x"], ["no sweep 'x'"]),
    (["duel", "1", "--left", "you", "--right", "house"], ["you play in the app"]),
    (["sweep", "--players", "baseline", "--name", "a/b"], ["cannot be a sweep's name"]),
    (["duel", "1", "--left", "house"], ["--right"]),
    (["duel", "1", "--left", "nowhere.py", "--right", "house"], ["nowhere.py"]),
    (["duel", "1", "--left", "model:none", "--right", "house"], ["none"]),
    (["duel", "1", "--left", "house", "--right", "baseline", "--minutes", "0"], ["minutes"]),
    (["duel", "1", "--left", "house", "--right", "baseline", "--budget", "0"], ["budget"]),
    (["duel", "1", "--left", "house", "--right", "baseline", "--budget", "2"], ["neither player spends anything"]),
    (["duel", "1", "--left", "agent:nobody", "--right", "house"], ["no model 'nobody'"]),
    (["export", "b"], ["no result to export"]),
    (["run", "2", "baseline-graph", "--device", "cpu"], ["baseline-graph needs GPU ranks"]),
    (["board", "--sweep", "x"], ["no sweep 'x'"]),
    (["board", "--json", "--csv"], ["--csv"]),
    (["import", "nowhere"], ["there is no folder nowhere"]),
    (["import", "."], [". is no bundle: it has no manifest.json"]),
    (["demo", "--script", "nowhere.toml"], ["nowhere.toml", "--print-script"]),
    (["completion", "tcsh"], ["'SHELL': 'tcsh'", "bash"]),
    (["list", "--category"], ["requires an argument", "--category"]),
    (["list", "--category", "tensors"], ["tensors", "choose from collective"]),
    (["show", "13", "--house", "--json"], ["--json has the text"]),
    (["run", "13", "kernel.py", "--world", "9"], ["9"]),
    (["run", "13", "kernel.py", "--rounds", "-1"], ["--rounds"]),
    (["watch", "13", "baseline"], ["baseline"]),
    (["replay", "20200101-000000-00000000"], ["20200101-000000-00000000"]),
    (["config", "path", "attic"], ["attic"]),
    (["replay", "last", "--source", "--json"], ["--source prints"]),
    (["demo", "--print-script", "--script", "nowhere.toml"], ["nowhere.toml"]),
    (["run", "13", "kernel.py", "--seconds", "0"], ["--seconds", "0.1"]),
    (["run", "13", "kernel.py", "--seconds", "nan"], ["nan is not from 0.1 to 600"]),
    (["sweep", "--players", "model:fake", "--budget", "inf"], ["inf is not 1e-06 or more"]),
    (["replay", "last", "--speed", "nan"], ["--speed", "nan is not"]),
]
SEVERAL = """
import contextlib, io, json, sys
from screens.main import main
found = []
for arguments in json.loads(sys.argv[1]):
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as end:
            status = end.code
    found.append((status, out.getvalue(), err.getvalue()))
print(json.dumps(found))
"""
"""Runs several command lines, one after another, in one process."""


def test_bad_usage_gets_one_message_and_exit_2(command_lines: Any, kernel: Path, home: Path, tmp_path: Path) -> None:
    several = json.dumps([arguments for arguments, _ in BAD_USAGE])
    done = command_lines.run(SEVERAL, [several], tmp_path, os.environ, PATIENCE_S)
    for (arguments, words), (status, out, err) in zip(BAD_USAGE, json.loads(done.stdout), strict=True):
        assert (status, out) == (2, ""), arguments
        assert err.startswith("pkb-arena: "), arguments
        assert [word for word in words if word not in err] == [], arguments
        assert not [word for word in ("Traceback", "Errno", "integer range", "<=x", "codec") if word in err], arguments
    assert not (home / "data").exists()  # nothing was started


@pytest.mark.parametrize(
    ("line", "arguments", "code", "words"),
    [
        ('worlds = [2]\nworlds_reason = "it takes two"\n', "run two_only kernel.py --world 3", 2, "it takes two"),
        ('class = "B"\n', "show two_only --house", 2, "there are house kernels for 1,"),
        ('class = "Z"\n', "list", 0, "'Z'"),  # it hides no other problem
    ],
)
def test_problem_of_ones_own_is_refused_with_reason(
    pkb_arena: CommandLine, kernel: Path, tmp_path: Path, home: Path, line: str, arguments: str, code: int, words: str
) -> None:
    folder = tmp_path / "mine" / "two_only"
    shutil.copytree(load_catalogue().find("13").folder, folder)
    text = (folder / "problem.toml").read_text().replace("id = 13", f'id = 913\ncategory = "tensor"\n{line}')
    (folder / "problem.toml").write_text(text.replace('class = "C"\n', "") if "class" in line else text)
    (folder / "house.py").unlink()
    set_up(home, f'problem_dirs = ["{folder.parent}"]\n'.encode())
    done = pkb_arena(*arguments.split())
    assert done.returncode == code
    assert words in " ".join(done.stderr.split())
    assert ("gemm_allreduce" in done.stdout) == (code == 0)
    assert not (home / "data").exists()


@pytest.mark.skipif(visible_gpus() > 0, reason="this machine has GPUs")
def test_cuda_without_a_gpu_is_the_machines_fault(pkb_arena: CommandLine, kernel: Path) -> None:
    fails(pkb_arena("run", "13", "kernel.py", "--device", "cuda"), 3, "--device cpu")


@pytest.mark.parametrize(("command", "redirected"), [("--help", ">&-"), ("list", "> /dev/full")])
def test_broken_stdout_ends_with_3_without_traceback(home: Path, command: str, redirected: str) -> None:
    script = f'"{sys.executable}" -m arena.cli {command} {redirected}; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("pkb-arena: ")
    assert "Traceback" not in done.stderr
    assert "Errno" not in done.stderr


@pytest.mark.parametrize("error", [KeyError("x"), ExceptionGroup("tasks", [KeyError("x")])])
def test_unexpected_error_ends_with_3_and_traceback(
    home: Path, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fail() -> None:
        raise error

    kept = paths_in(home).traceback
    assert exit_code_of(fail) == ExitCode.ENVIRONMENT
    said = capsys.readouterr().err
    assert said.startswith(f"pkb-arena: unexpected error: {type(error).__name__}: ")
    assert str(kept) in said
    assert "Traceback" not in said
    assert "KeyError: 'x'" in kept.read_text()
    kept.unlink()
    kept.mkdir()
    assert exit_code_of(fail) == ExitCode.ENVIRONMENT
    assert "KeyError: 'x'" in capsys.readouterr().err


def test_deleted_folder_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = home.with_name("gone")
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert exit_code_of(Path("kernel.py").absolute) == ExitCode.ENVIRONMENT
    assert "pkb-arena: the working folder was deleted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [("show nonsense 2>&-", 2, ""), ("list >&- 2>&-", 3, ""), ("run 13 - <&-", 2, "standard input is closed")],
)
def test_a_stream_that_is_closed_ends_nothing(home: Path, command: str, code: int, words: str) -> None:
    script = f'"{sys.executable}" -m screens.main {command}'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert words in done.stderr
    assert bool(done.stdout) == (code == 0)


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [(b"\xff\xfe", 2, "it is not UTF-8 text (byte 0)"), (b'problem_dirs = ["/nowhere/mine"]\n', 0, "/nowhere/mine")],
)
def test_settings_file_with_fault_is_named_plainly(
    pkb_arena: CommandLine, home: Path, content: bytes, code: int, words: str
) -> None:
    set_up(home, content)
    done = pkb_arena("list")
    assert done.returncode == code
    assert words in done.stderr
    assert "settings.toml" in done.stderr or "problem_dirs" in done.stderr
    assert "codec" not in done.stderr


def test_file_that_is_no_journal_is_named(pkb_arena: CommandLine, home: Path) -> None:
    paths = paths_in(home)
    for folder in (paths.sweeps, paths.duels, paths.runs):
        folder.mkdir(parents=True)
        (folder / "x.jsonl").write_text("not a journal\n")
    (paths.runs / "y.jsonl").touch()  # not the last one: it is empty
    for code, arguments in (
        (3, ["board"]),  # the board is without this journal
        (2, ["sweep", "--resume", "--name", "x"]),
        (2, ["replay", "x"]),
        (2, ["replay", "last"]),
    ):
        done = pkb_arena(*arguments)
        assert done.returncode == code
        assert "x.jsonl" in done.stderr
        assert "JSON is malformed" not in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_complete_commands_and_problems(pkb_arena: CommandLine, shell: str) -> None:
    done = pkb_arena("completion", shell)
    assert done.returncode == 0
    assert "_PKB_ARENA_COMPLETE" in done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("run gemm_allr", "plain,gemm_allreduce"),
        ("run 13 h", "plain,house"),
        ("run 13 house --dtype float3", "plain,float32"),
        ("duel 13 --dtype i", ""),
        ("duel 1 --left model:o", "plain,model:opus"),
        ("replay la", "plain,last"),
        ("void r", "plain,r1"),
    ],
)
def test_completion_offers_what_fits(pkb_arena: CommandLine, paths: Paths, typed: str, offered: str) -> None:
    ran(paths, "r1", "pass", 1.5)
    save_settings(Settings(models={"opus": ModelSettings(provider="anthropic", model="opus")}), paths)
    number = str(len(typed.split()))
    completed = pkb_arena(_PKB_ARENA_COMPLETE="bash_complete", COMP_WORDS=f"pkb-arena {typed}", COMP_CWORD=number)
    assert offered in completed.stdout.splitlines() or offered == completed.stdout


def test_colour_only_for_terminals_that_want_it(home: Path) -> None:
    def coloured(**environment: str) -> bool:
        primary, secondary = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-c", COMMAND_LINE, "run", "1", "baseline", "--device", "cpu"],
            stdin=secondary,
            stdout=secondary,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"TERM": "xterm-256color", "PKB_TEST_REFEREE": json.dumps(COMMAND)} | environment,
        ) as process:
            os.close(secondary)
            text = b""
            try:
                while chunk := os.read(primary, 4096):
                    text += chunk
            except OSError:
                pass  # the pty raises EIO when its other end is closed
            process.wait()
        os.close(primary)
        assert b"PASS" in text
        return b"\x1b[" in text

    assert coloured()
    assert not coloured(NO_COLOR="1")
    assert not coloured(TERM="dumb")


def test_doctor_json_says_what_can_be_done(pkb_arena: CommandLine, home: Path) -> None:
    done = pkb_arena("doctor", "--json")
    said = json.loads(done.stdout)
    assert done.returncode == (0 if said["can_run"] else 3)
    names = {finding["name"] for finding in said["findings"]}
    assert {"python", "torch", "GPUs", "gcc", "/dev/shm", "sealed memory", "data folder"} <= names
    for finding in said["findings"]:
        assert finding["state"] == "ok" or finding["advice"]
    assert said["clocks"] == []  # nothing was run here
    assert "clocks" in names
    assert not home.exists()


def test_light_commands_stay_light() -> None:
    code = (
        "import sys; from screens.main import main\n"
        "try: main(['list'])\n"
        "except SystemExit: pass\n"
        "import arena.runs.engine\n"
        "heavy = {'torch', 'cupy', 'httpx', 'textual', 'watchfiles', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fun"], ["fun", "`python -m benchmarks --help`"]),
        (["aa", "--device", "cuda"], ["--device", "`python -m benchmarks aa --help`"]),
        (["clock", "--loaded"], ["--loaded"]),
        (["save", "13"], ["13"]),
        (["ab", "nonsense"], ["nonsense"]),
    ],
)
def test_bad_usage_of_a_benchmark_gets_one_message(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]
) -> None:
    command = partial(benchmarks.__main__.main.main, arguments, prog_name=PROGRAM, standalone_mode=False)
    assert exit_code_of(command) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert [word for word in (*words, "pkb-arena: ") if word not in err] == []


@pytest.mark.parametrize("module", ["arena.cli", "arena.cli.problems"])
def test_an_interrupt_during_imports_ends_without_a_traceback(module: str) -> None:
    program = f"""if True:
        import os, signal, sys

        class Interrupts:
            def find_spec(self, name, path=None, target=None):
                if name == {module!r}:
                    os.kill(os.getpid(), signal.SIGINT)

        sys.meta_path.insert(0, Interrupts())
        from screens.main import main
        main(["list"])
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (ExitCode.INTERRUPTED, "", "")
