"""Tasks for Harbor: a folder for each problem, in Harbor's task format (schema 1.4).

The agent works in an image without the arena and its house kernels. The verifier is a container of its own with the image
`pkb-arena` of the Dockerfile; it gets the agent's kernel.py only, and judges it.

    python -m arena.export.harbor REPORT     reads `run --json`, prints the rewards
"""

import sys
from pathlib import Path
from typing import Any

import msgspec

from arena.api import reward
from arena.errors import UsageError
from arena.paths import NAMED, Paths, make_folder, writing
from arena.players.prompt import build_prompt
from arena.records.run_record import record_in
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.workspace.named_kernels import house_source
from problems.catalogue import Catalogue
from problems.specification import Problem
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Setting
from sandbox.protocol.verdict import ExitCode, Verdict

IMAGE = "pkb-arena"
BASE = "pytorch/pytorch:2.9.1-cuda13.0-cudnn9-runtime"
KERNEL = "/app/kernel.py"
_WHERE = f"\n\nWrite one whole file, not several, to `{KERNEL}`. Only this file is judged, in another container."

_TOML = """\
schema_version = "1.4"
artifacts = ["{kernel}"]

[task]
name = "pkb-arena/{problem.stem}"
version = "{version}"
description = {title}
keywords = ["{problem.category}", "class-{problem.class_}"]

[metadata]
id = {problem.id}
category = "{problem.category}"
class = "{problem.class_}"
preset = "{setting.preset}"
device = "{setting.device}"
world = {setting.world}
dtype = "{setting.dtype}"

[verifier]
timeout_sec = 900.0
environment_mode = "separate"

[agent]
timeout_sec = 1800.0

[environment]
network_mode = "public"
build_timeout_sec = 1800.0
{gpus}"""
_AGENT_IMAGE = """\
FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends gcc g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /app
"""
_VERIFIER_IMAGE = """\
# Build it from the Dockerfile of pkb-arena: docker build -t {image} .
FROM {image}
USER root
ENTRYPOINT []
COPY . /tests/
WORKDIR /app
"""
_TEST = """\
#!/bin/bash
# Without a verdict, because the harness failed, there is no reward. A missing file fails as an empty one.
[ -f {kernel} ] || : > {kernel}
pkb-arena run {problem.id} {kernel} {options} --json > /logs/verifier/report.json
python3 -m arena.export.harbor /logs/verifier/report.json > /tmp/reward.json && mv /tmp/reward.json /logs/verifier/reward.json
"""
_SOLVE = f"#!/bin/bash\ncp /solution/kernel.py {KERNEL}\n"


def export_harbor(paths: Paths, catalogue: Catalogue, settings: Settings, folder: Path, version: str) -> int:
    """Writes a task for each problem into a new folder, in the setting of this machine. Returns their number.

    Raises:
        UsageError: the folder is not empty.
        FolderUnwritable: it cannot be written.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", "name a new folder")
    make_folder(folder, NAMED)
    with writing(folder, NAMED):
        for problem in catalogue.problems:
            setting = choose_setting(problem, Choice(), settings)
            conversation = build_prompt(problem, setting, catalogue, paths).conversation
            task = f"{conversation.system}\n\n{conversation.messages[0].content}{_WHERE}\n"
            _write(folder / problem.stem, _files(problem, setting, catalogue, task, version))
    return len(catalogue.problems)


def _files(problem: Problem, setting: Setting, catalogue: Catalogue, task: str, version: str) -> dict[str, str]:
    """Returns the files of a task by path."""
    on_gpus = kind_of(setting.device).on_gpus
    options = f"--preset {setting.preset} --device {setting.device} --world {setting.world} --dtype {setting.dtype}"
    try:
        solution = house_source(problem, catalogue)
    except UsageError:  # without a house kernel
        solution = problem.baseline_source
    toml = _TOML.format(
        kernel=KERNEL,
        problem=problem,
        setting=setting,
        version=version or "0",
        title=msgspec.json.encode(problem.title).decode(),
        gpus=f"gpus = {setting.world}\n" if on_gpus else "",
    )
    return {
        "task.toml": toml,
        "instruction.md": task,
        "environment/Dockerfile": _AGENT_IMAGE.format(base=BASE),
        "tests/Dockerfile": _VERIFIER_IMAGE.format(image=IMAGE),
        "tests/test.sh": _TEST.format(problem=problem, kernel=KERNEL, options=options),
        "solution/solve.sh": _SOLVE,
        "solution/kernel.py": solution,
    }


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".sh":
            path.chmod(0o755)


def rewards(report: bytes) -> dict[str, float] | None:
    """Returns the rewards of a run, from the output of `run --json`; None without a verdict on the kernel."""
    try:
        record = record_in(msgspec.json.decode(report, type=dict[str, Any]))
    except ValueError:
        return None
    if record.verdict is Verdict.HARNESS_ERROR:
        return None
    faster = record.passed and record.outcome == "faster"
    return {"reward": reward(record), "correct": float(record.passed), "faster": float(faster)}


if __name__ == "__main__":
    found = rewards(Path(sys.argv[1]).read_bytes())
    if found is None:
        sys.exit(ExitCode.ENVIRONMENT)
    print(msgspec.json.encode(found).decode())
