"""A referee whose behaviour is set by the first line of the kernel's source: failures on demand.

Sources: `pass`, or none as for the baseline; `budget`, which also prints its budget; `wrong`; `wait` for a cancel; `times`,
which passed the check and waits for a cancel; `measures`, which has a verdict and goes on measuring;
`waits`, which sends Waiting and then passes; `busy`, for which the machine is too busy at first; `breaks`, whose final fails;
`hang`, which stops answering; `die`, which leaves a folder; `garbage`; `fatal`; `refuse`.
"""

import os
import sys
import time

import msgspec

from sandbox.machine.locked_folder import WORLD, LockedFolder
from sandbox.protocol import events
from sandbox.protocol.verdict import Verdict

COMMAND = (sys.executable, "-P", __file__)
"""Starts it."""
met_busy: set[str] = set()
"""Hashes of the kernels that a busy machine has kept from their verdict."""
correct: list[events.Result] = []
"""The result of the kernel that is being timed, if it is cancelled."""


def say(event: events.AnyEvent) -> None:
    sys.stdout.buffer.write(events.encode(event) + b"\n")
    sys.stdout.buffer.flush()


def on_device() -> events.Interval | None:
    """Returns the speedup by device time, or None unless that is the clock of the headline."""
    return events.Interval(1.01, 0.99, 1.03) if os.environ.get("PKB_SCRIPTED_CLOCK") == "device" else None


def finished(command: events.Run, sha256: str, verdict: Verdict = Verdict.PASS) -> events.Finished:
    rival = None
    if command.versus is not None:
        rival = events.RivalResult(verdict=Verdict.PASS, detail="", failure=None, sha256="")
    speedup = events.Speedup(call=events.Interval(median=1.5, low=1.4, high=1.6), device=on_device())
    timed = command.rounds != 0 and verdict is Verdict.PASS
    result = events.Result(
        verdict=verdict,
        detail="all right",
        failure=None,
        paper_rule="match",
        speedup=speedup if timed else None,
        jail="none",
        sealed=True,
        outcome=os.environ.get("PKB_SCRIPTED_OUTCOME", "faster") if timed else "",
        clock=os.environ.get("PKB_SCRIPTED_CLOCK", "call"),
        told="what both clocks say",
        advice="more rounds, a quieter machine",
        rounds=3,
        rival=rival,
    )
    return events.Finished(run_id=command.run_id, sha256=sha256, result=result)


def judge(command: events.Run) -> None:
    source = command.source
    sha256 = command.kernel.sha256
    if source.strip() == "refuse":
        say(events.Refused(run_id=command.run_id, message="sizes do not fit", advice="choose others"))
        return
    say(
        events.RunStarted(
            run_id=command.run_id, setting=command.setting, kernel_name=command.kernel_name, sha256=sha256
        )
    )
    say(events.PhaseStarted(run_id=command.run_id, phase="check", limit_s=0.1))
    match source.strip().partition("\n")[0]:  # comments may follow
        case "pass" | "":
            say(finished(command, sha256, Verdict(os.environ.get("PKB_SCRIPTED_VERDICT", "PASS"))))
        case "budget":
            text = f"a budget of {command.budget_s:g} s"
            say(events.Log(run_id=command.run_id, rank=-1, text=text))
            say(finished(command, sha256))
        case "waits":
            say(events.Waiting(run_id=command.run_id))
            say(finished(command, sha256))
        case "busy":
            say(finished(command, sha256, Verdict.PASS if sha256 in met_busy else Verdict.HARNESS_ERROR))
            met_busy.add(sha256)
        case "breaks":
            say(finished(command, sha256, Verdict.HARNESS_ERROR if command.versus else Verdict.PASS))
        case "wrong":
            say(finished(command, sha256, Verdict.WRONG_RESULT))
        case "times":
            say(events.Checked(run_id=command.run_id, verdict=Verdict.PASS, seconds=0.1))
            correct.append(finished(msgspec.structs.replace(command, rounds=0), sha256).result)
        case "measures":
            say(events.Checked(run_id=command.run_id, verdict=Verdict.PASS, seconds=0.1))
            say(events.Judged(run_id=command.run_id, sha256=sha256, result=finished(command, sha256).result))
        case "hang":
            time.sleep(600)
        case "die":
            LockedFolder(WORLD)
            sys.stderr.write("last words")
            sys.stderr.flush()
            os._exit(9)
        case "garbage":
            sys.stdout.write("<html>\n")
            sys.stdout.flush()
        case "fatal":
            say(events.Fatal(message="the baseline world is gone", text="why"))


def main() -> None:
    say(events.Ready(pid=os.getpid(), jail=os.environ.get("PKB_SCRIPTED_JAIL", "none")))
    for line in sys.stdin.buffer:
        match events.decode_command(line):
            case events.Run() as command:
                judge(command)
            case events.Cancel(run_id=run_id):
                say(events.Cancelled(run_id=run_id, phase="check", result=correct.pop() if correct else None))
            case events.Warm():
                say(events.WorldChanged(role="spare", state="ready", world=2))
            case events.Calibrate():
                say(events.Calibrated(world=2, device="cpu", peaks={"local": 2e9}, seconds=0.1))
            case _:
                pass


if __name__ == "__main__":
    main()
