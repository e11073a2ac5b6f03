"""The first process of a world whose rank 0 runs under Nsight Compute. It sends the results, and does not import torch.

    python -m sandbox.rank.profiling.ncu PLAN

Peers of rank 0 run without ncu. Clocks stay as they are (`--clock-control none`).
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from sandbox.machine.processes import die_with_parent
from sandbox.protocol.profile import MOST_FILE, MOST_TEXT, NcuAnswer, NcuPlan, Replay, decode_ncu_plan, encode

LEFT_OUT = "nccl|px_device_barrier|px_device_wait"
"""Parts of the names of kernels that only wait for peers and exchange data with them."""
RANK = "sandbox.rank.profiling.ncu_rank"
START_S = 30.0
"""Limit for the start of the process that forks the peers."""
MOST_LINES = 10_000
IMPORT_S = 40.0
"""Limit for reading a report."""
PLAN, PEERS = "ncu-plan.json", "ncu-peers"
"""Files in the world's folder: the plan, and the socket of the process that forks the peers of rank 0."""
FAILED = "pkb-arena: rank "
"""The start of the line in which a rank reports its failure."""


def main() -> None:
    """Tries the replays of the plan in their order."""
    die_with_parent()
    plan = decode_ncu_plan(sys.argv[1])
    folder = Path(plan.world.folder)
    (folder / PLAN).write_text(sys.argv[1])
    # Started before ncu, whose environment would profile these processes, too.
    peers = subprocess.Popen([sys.executable, "-m", RANK, str(folder / PLAN)], stdin=subprocess.DEVNULL)
    try:
        _wait_for(folder / PEERS, peers)
        _try_all(plan, folder)
    finally:
        peers.kill()
        peers.wait()


def _wait_for(path: Path, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + START_S
    while not path.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)


def _try_all(plan: NcuPlan, folder: Path) -> None:
    refused: dict[str, str] = {}
    for replay in plan.replays:
        report = folder / f"{replay.mode}.ncu-rep"
        started = time.monotonic()
        why = _record(plan, replay, report)
        seconds = time.monotonic() - started
        if not why:
            csv, why = _as_csv(plan, report)
        if not why and report.stat().st_size <= MOST_FILE:
            _send(plan, NcuAnswer(replay.mode, seconds, csv, refused), report.read_bytes())
            return
        refused[replay.mode] = why or f"the report is larger than {MOST_FILE >> 20} MiB"
    _send(plan, NcuAnswer(refused=refused), b"")


def _send(plan: NcuPlan, answer: NcuAnswer, report: bytes) -> None:
    with os.fdopen(plan.answer, "wb") as stream:
        stream.write(encode(answer))
    with os.fdopen(plan.file, "wb") as stream:
        stream.write(report)


def command(plan: NcuPlan, replay: Replay, report: Path) -> list[str]:
    """The command line of ncu for one replay."""
    sections = [word for name in replay.sections for word in ("--section", name)]
    return [
        *(plan.ncu, "--clock-control", "none", "--replay-mode", replay.mode, *sections),
        *("--target-processes", "application-only", "--profile-from-start", "off"),
        *("--kernel-name-base", "function", "--kernel-name", f"regex:^(?!.*({LEFT_OUT})).*$"),
        *("--launch-count", str(replay.launches), "--force-overwrite", "--export", str(report)),
        *(sys.executable, "-m", RANK),
        *(str(Path(plan.world.folder) / PLAN), replay.mode),
    ]


def _record(plan: NcuPlan, replay: Replay, report: Path) -> str:
    """Writes a report. Returns why there is none, in one line; else empty."""
    try:
        ended, said = _run(command(plan, replay, report), replay.limit_s)
    except OSError as error:
        return f"ncu did not start: {error}"
    if ended and report.exists():
        return ""
    late = f"it did not end within {replay.limit_s:.0f} s"
    passes = sum("Application replay pass" in line for line in said)
    if passes:
        late += f", which were enough for {passes - 1} passes"
    last = f": {said[-1][:200]}" if said else ""
    return reason(said) or (late if ended is None else f"ncu wrote no report{last}")


def _run(words: list[str], limit_s: float) -> tuple[bool | None, list[str]]:
    """Runs a command, then kills its process group. Returns its success (None: too late) and its printed lines."""
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    said: list[str] = []

    def read(lines: IO[str], started: float) -> None:
        for line in lines:
            if len(said) < MOST_LINES:
                said.append(line.strip())
                print(f"{time.monotonic() - started:.1f} s {line.rstrip()}", flush=True)

    reader = threading.Thread(target=read, args=(process.stdout, time.monotonic()), daemon=True)
    reader.start()
    try:
        ended: bool | None = process.wait(limit_s) == 0
    except subprocess.TimeoutExpired:
        ended = None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    reader.join(1.0)
    return ended, said


def reason(lines: Sequence[str]) -> str:
    """The line of ncu or of a rank that has the reason of a failure; empty if there is none."""
    for begin in (FAILED, "==ERROR==", "==WARNING== No kernels"):
        if found := [line for line in lines if line.startswith(begin)]:
            return found[0].removeprefix("pkb-arena: ").removeprefix("==ERROR== ").removeprefix("==WARNING== ")[:300]
    return ""


def _as_csv(plan: NcuPlan, report: Path) -> tuple[str, str]:
    """(the report as text, why it could not be read)."""
    words = [plan.ncu, "--import", str(report), "--page", "details", "--csv", "--print-units", "base"]
    try:
        done = subprocess.run(words, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=IMPORT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"ncu did not read its report: {error}"
    text = done.stdout.decode(errors="replace")
    if done.returncode or len(text) > MOST_TEXT // 2:
        return "", f"ncu did not read its report (status {done.returncode}, {len(text)} characters)"
    return text, ""


if __name__ == "__main__":
    main()
