"""`generate` and `agent` as users run them: a provider on this machine, the real judge, and no key in any file."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from forked_programs import CommandLine, answer_of, fails
from model_server import KEY, ModelServer, Reply, dripping, streamed
from waiting import PATIENCE_S, all_end, eventually

from problems.catalogue import load_catalogue

SETTING = ("--device", "cpu", "--preset", "tiny", "--world", "2", "--rounds", "0")
WRONG = "```python\nimport torch\n\n\ndef solution(tensor):\n    return tensor.clone()  # forgot the peers\n```\n"
RIGHT = """Peers are read after a barrier.

```python
import torch

from sandbox.kit import symm


def solution(tensor):
    peers = symm.peers(symm.stage(tensor))
    symm.barrier()
    return sum(peer.float() for peer in peers).to(tensor.dtype)
```
"""


def answer(word: str) -> Reply:
    """A model's answer with a kernel for the scripted referee."""
    return streamed(f"```python\n{word}\n\n\ndef solution(tensor):\n    return tensor\n```\n")


def no_key_below(*folders: Path) -> None:
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                assert KEY.encode() not in path.read_bytes(), path


def test_print_prompt_needs_neither_key_nor_model(pkb_arena: CommandLine, home: Path) -> None:
    done = pkb_arena("generate", "13", "--print-prompt", "--device", "cpu", "--shots", "0")
    assert done.returncode == 0, done.stderr
    assert load_catalogue().find("13").baseline_source.strip() in done.stdout
    assert "A_local" in done.stdout
    assert not home.exists()
    said = json.loads(pkb_arena("generate", "13", "--print-prompt", "--device", "cpu", "--json").stdout)
    assert (said["version"], said["shots"]) == ("v1", 1)
    assert said["conversation"]["messages"][0]["role"] == "user"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--model is missing"),
        (("--model", "nobody"), "there is no model 'nobody'"),
        (("--model", "./mine.py"), "an agent program plays as agent:PATH"),
        (("--model", "gemini:flash"), "there is no key GEMINI_API_KEY"),
        (("--model", "openai_chat", "-o", "there.py"), "there.py exists"),
        (("--model", "openai_chat", "--budget", "0"), "budget"),
    ],
)
def test_impossible_generation_is_refused_before_any_request(
    pkb_arena: CommandLine, models: ModelServer, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "there.py").write_text("mine")
    fails(pkb_arena("generate", "1", *SETTING, *arguments, GEMINI_API_KEY=""), 2, words)
    assert models.seen == []
    assert (tmp_path / "there.py").read_text() == "mine"


def test_unwritable_folder_is_named_before_any_request(pkb_arena: CommandLine, models: ModelServer) -> None:
    done = pkb_arena("generate", "1", *SETTING, "--model", "openai_chat", "-o", "/proc/nowhere/x.py")
    fails(done, 3, "cannot write to /proc/nowhere")
    assert models.seen == []


def test_harness_errors_are_no_attempts(pkb_arena_scripted: CommandLine, models: ModelServer) -> None:
    models.replies = [answer("pass")]
    given = ("generate", "1", *SETTING, "--model", "openai_chat", "--attempts", "2", "--json")
    done = pkb_arena_scripted(*given, PKB_SCRIPTED_VERDICT="HARNESS_ERROR")
    said = json.loads(done.stdout)
    assert {attempt["report"]["verdict"] for attempt in said["attempts"]} == {"HARNESS_ERROR"}
    assert (done.returncode, said["pass_at"], said["faster_at"], said["passed"]) == (3, {}, {}, False)


def test_only_writing_runs_nothing(pkb_arena: CommandLine, models: ModelServer, tmp_path: Path, home: Path) -> None:
    models.replies = [streamed(RIGHT)]
    said = answer_of(pkb_arena("generate", "1", *SETTING, "--model", "gemini", "--no-run", "-o", "mine.py", "--json"))
    assert (said["kernel"], said["attempts"][0]["report"], said["pass_at"]) == ("mine.py", None, None)
    assert (tmp_path / "mine.py").read_text().startswith("import torch\n")
    assert not (home / "data" / "runs").exists()


def test_an_answer_of_several_files_becomes_a_folder(
    pkb_arena: CommandLine, models: ModelServer, tmp_path: Path
) -> None:
    answer = (
        "```python kernel.py\nfrom .part import solution\n```\n\n```python part.py\ndef solution(tensor): ...\n```\n"
    )
    models.replies = [streamed(answer)] * 2
    arguments = ("generate", "1", "--model", "openai_chat", "--no-run", "-o", "mine.py", "--json", *SETTING[:-2])
    first, second = (json.loads(pkb_arena(*arguments).stdout) for _ in range(2))
    assert first["kernel"] == "mine"
    assert (tmp_path / "mine/part.py").read_text() == "def solution(tensor): ...\n"
    assert second["kernel"] == f"mine-{first['attempts'][0]['sha256'][:8]}"
    for folder, text, files in (("two_shot", answer, {"kernel.py", "part.py"}), ("one", RIGHT, {"kernel.py"})):
        models.replies = [streamed(text)]
        said = json.loads(pkb_arena(*arguments[:5], "-o", f"{folder}/", *arguments[7:]).stdout)
        assert Path(said["kernel"]).parts[0] == folder
        assert {path.name for path in (tmp_path / folder).iterdir()} == files


@pytest.mark.slow
@pytest.mark.usefixtures("jail")
def test_agent_reads_its_verdict_and_fixes_its_kernel(
    pkb_arena: CommandLine, models: ModelServer, tmp_path: Path
) -> None:
    models.replies = [streamed(WRONG), streamed(RIGHT + f"\nBy the way, the key is {KEY}.")]
    done = pkb_arena("agent", "1", *SETTING, "--model", "openai_chat", "--steps", "2", "--budget", "1", "--json")
    said = answer_of(done)
    assert [attempt["report"]["verdict"] for attempt in said["attempts"]] == ["WRONG_RESULT", "PASS"]
    assert (said["best"], said["passed"], said["player"], said["reason"]) == (2, True, "agent:openai_chat", "steps")
    assert said["spent"]["usd"] > 0
    assert said["pass_at"] is None
    kernel = Path(said["kernel"])
    assert kernel.read_text() == RIGHT.split("```python\n")[1].split("```")[0]
    second = models.seen[1].prompt
    for words in ("WRONG_RESULT", "First wrong element", "expected", "forgot the peers"):
        assert words in second
    # The trace can be replayed, and the key is in no output and no file.
    told = pkb_arena("replay", said["trace_id"], "--json")
    assert told.returncode == 0, told.stderr
    kinds = [json.loads(line)["type"] for line in told.stdout.splitlines()]
    assert (kinds[0], kinds[-1], kinds.count("judged")) == ("trace", "ended", 2)
    assert "trace cannot be recorded" in pkb_arena("replay", said["trace_id"], "--record", "it.cast").stderr
    lines = pkb_arena("replay", said["trace_id"]).stdout
    assert "WRONG_RESULT" in lines
    assert "PASS" in lines
    assert KEY not in done.stdout + done.stderr + told.stdout + lines
    no_key_below(tmp_path)
    (row,) = (row for row in json.loads(pkb_arena("list", "--json").stdout) if row["id"] == 1)
    assert not row["solved"]  # a model's kernel does not count for the user


def test_attempts_are_independent_and_the_best_is_kept(
    pkb_arena_scripted: CommandLine, models: ModelServer, tmp_path: Path
) -> None:
    models.replies = [answer("wrong"), streamed("no", finish="refusal"), answer("pass"), streamed("")]
    given = ("generate", "1", *SETTING, "--model", "openai_responses", "--attempts", "4", "-o", "best.py", "--json")
    done = pkb_arena_scripted(*given)
    said = answer_of(done)
    assert [attempt["outcome"] for attempt in said["attempts"]] == ["kernel", "refusal", "kernel", "empty"]
    assert said["pass_at"] == {"1": 0.25, "2": 0.5, "3": 0.75, "4": 1.0}
    assert said["best"] == 3
    assert (tmp_path / "best.py").read_text().startswith("pass\n")
    assert len({seen.prompt for seen in models.seen}) == 1
    assert KEY not in done.stderr


def test_right_kernels_are_judged_at_requested_other_sizes(
    pkb_arena_scripted: CommandLine, models: ModelServer
) -> None:
    models.replies = [answer("wrong"), answer("pass"), answer("pass")]
    given = ("generate", "1", *SETTING, "--model", "anthropic", "--other-sizes")
    done = pkb_arena_scripted(*given, "--attempts", "2", "--json")
    wrong, right = (attempt["report"] for attempt in answer_of(done)["attempts"])
    assert "other_sizes" not in wrong
    assert [other["verdict"] for other in right["other_sizes"]] == ["PASS"] * 3
    assert "other setting 3 of 3" in done.stderr
    shown = pkb_arena_scripted(*given)
    assert "     other sizes: right in 3 other settings, too\n     other size: ✓ M=" in shown.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("jail")
def test_no_process_inherits_key_and_interrupt_ends_all(models: ModelServer, tmp_path: Path, home: Path) -> None:
    models.replies = [dripping(b": wait\n\n", b": wait\n\n")]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "arena.cli", "agent", "1", *SETTING, "--model", "gemini"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"SOME_API_KEY": KEY},
    )
    eventually(lambda: len(psutil.Process(process.pid).children(recursive=True)) >= 4)  # the referee, and worlds
    children = psutil.Process(process.pid).children(recursive=True)
    looked = 0
    for child in children:
        try:
            environment = Path(f"/proc/{child.pid}/environ").read_bytes()
        except OSError:
            continue  # the process is hidden, or has ended
        looked += 1
        assert KEY.encode() not in environment, child.cmdline()
    assert looked
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, stdout) == (130, "")
    assert "Traceback" not in stderr
    all_end(children)
    no_key_below(tmp_path)
